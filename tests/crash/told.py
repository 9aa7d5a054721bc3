"""`told.py TIMES VERB [WORD...]`: a verb in a process of its own that sees the times of change that a test plays."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from rewind import Times

from metamori.cli.main import main

if __name__ == "__main__":
    known = json.loads(Path(sys.argv[1]).read_text())
    Times({(dev, ino): (real, told) for (dev, ino), (real, told) in known}).play(pytest.MonkeyPatch())
    sys.exit(main(sys.argv[2:]))
