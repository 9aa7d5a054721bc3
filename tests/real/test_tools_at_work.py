"""The stories of stories/: real tools at work, natively and under Metamori, and back at their marks."""

from __future__ import annotations

from pathlib import Path

import pytest
from beside import HERE, Story, Trial

STORIES = sorted(path for path in (HERE / "stories").iterdir() if path.suffix in (".sh", ".py"))
ISOLATE = pytest.param(["--isolate"], marks=pytest.mark.slow, id="isolate")


@pytest.mark.in_turn("path", 3)
@pytest.mark.parametrize("options", [pytest.param([], id="default"), ISOLATE])
@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(trial: Trial, path: Path, options: list[str]) -> None:
    trial.tell(Story.read(path), *options)
