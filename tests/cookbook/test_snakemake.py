"""The page docs/how-to/snakemake.md, typed as it stands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import typed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("installed"), pytest.mark.skipif(
    shutil.which("snakemake") is None, reason="snakemake is not installed: pip install snakemake")]


def test_the_page(tmp_path: Path) -> None:
    text = (typed.ROOT / "docs" / "how-to" / "snakemake.md").read_text()
    typed.compare(typed.typed(typed.steps(text), tmp_path, 300,
                               EXAMPLES=str(typed.ROOT / "examples")))
