"""The manual: `make docs` builds it offline, warnings are errors."""

import importlib
import posixpath
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from completions import actions, help_of, words_of  # noqa: E402

from metamori.cli.options.parser import verb_parser  # noqa: E402

project = "Metamori"
author = "the Metamori authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Metamori"
html_static_path = ["pictures/manual.css"]
html_css_files = ["manual.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
highlight_language = "text"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3


def name_what_is_outside(app, page, text):  # type: ignore[no-untyped-def]
    """Links from docs/ into the source tree are for readers of the tree; in the manual they are the file's name."""
    def name(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link[2]))
        if path.startswith("docs/"):
            return link[0]
        said = link[1].strip("`")
        return f"`{path}`" if path.endswith(said) else f"{said} (`{path}`)"

    text[0] = re.sub(r"(?<!!)\[([^\]]*)\]\((\.\./[^)#\s]*)(?:#[^)]*)?\)", name, text[0])


def table_of(verb: str) -> str:
    """The arguments and options of a verb, as its parser has them."""
    parser = verb_parser(verb, importlib.import_module(f"metamori.cli.{verb}"))
    rows = ["| option | meaning |", "|---|---|"]
    for action in actions(parser):
        if action.option_strings != ["-h", "--help"]:
            option, meaning = (text.replace("|", "\\|") for text in (words_of(action), help_of(action)))
            named = re.sub(r"(?<![\w-])--[a-z][a-z-]*", r"`\g<0>`", meaning)   # not a dash
            rows.append(f"| `{option}` | {named} |")
    return "\n".join(rows)


def fill_in_options(app, page, text):  # type: ignore[no-untyped-def]
    """Where the page of the command line says `<!-- options of VERB -->`."""
    if page == "reference/cli":
        text[0] = re.sub(r"<!-- options of (\w+) -->", lambda found: table_of(found[1]), text[0])


def setup(app):  # type: ignore[no-untyped-def]
    app.connect("source-read", name_what_is_outside)
    app.connect("source-read", fill_in_options)
