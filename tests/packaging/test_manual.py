"""The manual: every link leads somewhere, every page is in the tree of contents, and it is built without a warning."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from metamori.cli.options import VERBS

ROOT = Path(__file__).resolve().parents[2]
WORDS_MOST, WITHOUT_DECISIONS_MOST = 22_000, 17_200  # docs and README.md, as `wc -w` counts; only fewer
FOLDERS = ("docs", "examples", "bench")
PAGES = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """As GitHub and myst make them of headings."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.replace("`", "").lower()).strip().replace(" ", "-") for head in heads}


def test_the_manual_stays_short() -> None:
    """39,599 words at 141048a, its 24 decisions (docs/adr) included. A new page is worth words of old ones."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    words = {page: len(page.read_text().split()) for page in pages if "_build" not in page.parts}
    assert sum(words.values()) <= WORDS_MOST
    assert sum(count for page, count in words.items() if "adr" not in page.parts) <= WITHOUT_DECISIONS_MOST


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", page.read_text()):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        file = page if not target else Path(os.path.normpath(page.parent / target))
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}#{anchor}"


def test_the_thesis_map_names_files_that_are_there() -> None:
    text = (ROOT / "docs" / "explanation" / "thesis-map.md").read_text()
    named = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|c|h|def|others))`", text))
    assert len(named) > 30
    folders = (ROOT, ROOT / "metamori", ROOT / "shim_c" / "src", ROOT / "tests" / "scenarios")
    assert not [name for name in named if not any((folder / name).exists() for folder in folders)]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "tests" / "README.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_the_tests_that_a_page_names_are_there(page: Path) -> None:
    there = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"((?:tests/[\w/]+/)?)(test_\w+\.py)", page.read_text())
    assert not [folder + name for folder, name in named
                if name not in there or (folder and not (ROOT / folder / name).exists())]


def test_it_is_built_without_a_warning(tmp_path: Path) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("sphinx", "furo", "myst_parser")):
        pytest.skip("sphinx, furo or myst-parser is not installed: pip install '.[docs]'")
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(ROOT / "docs"),
                           str(tmp_path / "html"), "-d", str(tmp_path / "trees")], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    for page in ("index", "tutorial", "how-to/slurm", "reference/messages", "explanation/thesis-map"):
        html = (tmp_path / "html" / f"{page}.html").read_text()
        fetched = r'(?:<script[^>]*src|<link[^>]*rel="stylesheet"[^>]*href)="https?:'
        assert not re.search(fetched, html), "it opens offline"
    page = re.sub(r"<[^>]*>", "", (tmp_path / "html" / "reference" / "cli.html").read_text())
    assert "options of" not in page and page.count("option\nmeaning") == len(VERBS), "tables made of the parsers"
    assert [option for option in ("--keep-every DURATION", "--mode incremental|single", "-m TEXT, --message TEXT",
                                  "--outside refuse|close|stdio", "EBADF; the number stays taken",
                                  "With --memory also a SIGTERM")
            if option not in page] == []
    assert [path.name for path in (tmp_path / "html" / "_downloads").rglob("*.*")] == ["schemas.json"], \
        "what is outside of docs is named, not linked"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")),
                         ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_code_fits_beside_the_contents(page: Path) -> None:
    """At a width of 1280 pixels a line of code has 88 characters."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert not [line for block in blocks for line in block.splitlines() if len(line) > 88]
