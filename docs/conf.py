"""The documentation site: `make docs` builds it with Sphinx into build/site/."""

project = "pairre"
html_title = "pairre"
extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["models-notes.md"]
html_theme = "furo"  # has its own search and fonts of the system: nothing is loaded from the network
html_copy_source = False
html_show_copyright = False
