"""Stands for a program that takes days."""
import time

with open("energies.part", "a") as out:
    for step in range(40):
        print("step", step, file=out, flush=True)
        time.sleep(0.1)
