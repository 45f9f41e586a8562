"""How Sphinx makes a site of these pages: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_site"))

project = "Paceline"
extensions = ["myst_parser", "plain_pages"]
root_doc = "index"
exclude_patterns = ["_site"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Paceline"
html_copy_source = False
html_show_copyright = False
