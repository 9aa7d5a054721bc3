"""The manual: `make docs` builds it offline, warnings are errors."""

project = "Metamori"
author = "the Metamori authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Metamori"
html_copy_source = False
html_show_sphinx = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# Links to files of the source tree are for readers of the tree; in the manual they are text.
suppress_warnings = ["myst.xref_missing"]
