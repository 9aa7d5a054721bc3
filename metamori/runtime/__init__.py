"""The live side: run area, checkpoints, restores inside the program, beginnings and ends of runs."""
