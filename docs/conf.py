"""How Sphinx makes a site of these pages: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_site"))

project = "Paceline"
extensions = ["myst_parser", "paceline_reference", "plain_pages", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
exclude_patterns = ["_site"]
autodoc_typehints = "none"  # what an argument must be, its description says
napoleon_google_docstring = False
napoleon_use_rtype = False
myst_heading_anchors = 4
toc_object_entries = False  # the reference has a thousand
suppress_warnings = ["misc.highlighting_failure"]  # tables in CSV have no colours
smartquotes_action = "D"  # of dashes alone: quotes belong to values
html_theme = "furo"
html_title = "Paceline"
html_show_search_summary = False  # it would read pages as a page from a disk may not
html_static_path = ["_site/static"]
html_css_files = ["paceline.css"]
html_copy_source = False
html_show_copyright = False
