"""Measurements of Metamori beside the same thing without it, in alternation. ``python -m bench --help``."""
