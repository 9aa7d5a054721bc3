"""Memory goes on only where the processor can do what it was using, on the kernel whose code it has seen."""

from __future__ import annotations

from metamori.runtime.memory.proc_inspect import machine, machine_refuses


def test_here_it_goes_on() -> None:
    assert machine_refuses(machine()) == ""
    assert len(machine()[1]) == 8, "the kernel's code was found"


def test_a_processor_that_can_less() -> None:
    features, code = machine()
    said = machine_refuses((features + b" antigravity", code))
    assert said == "this processor lacks features that it was using: antigravity"
    assert machine_refuses((features.split()[0], code)) == "", "one that can more is no matter"


def test_another_kernel() -> None:
    features, _ = machine()
    assert "another kernel" in machine_refuses((features, b"00000000"))
