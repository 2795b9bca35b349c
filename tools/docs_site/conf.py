"""Sphinx's configuration of the documents as a site: `make docs`.

The source folder is the repository itself, so that every page is one that stands there and its
links lead where they lead on a forge. What a page needs beside that is in the modules next to this.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import podium  # noqa: E402  # after the path

project = "Podium"
release = podium.__version__
version = release
copyright = "the Podium authors"  # the name that Sphinx asks for
root_doc = "docs/README"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "docs_site.contents",
    "docs_site.contract",
    "docs_site.diagrams",
    "docs_site.keyboard",
    "docs_site.python_api",
    "docs_site.source_files",
]
include_patterns = [
    "*.md",
    "docs/**.md",
    "bench/*.md",
    "charts/podium/README.md",
    "examples/**.md",
    "libs/podium/environments/**.md",
    "libs/podium/training/README.md",
    "services/*/README.md",
    "build/pages/**.md",
    "build/pages/**.rst",
]
exclude_patterns = [".*", "**/node_modules", "build/site", "build/images", "tests", "shared"]

myst_heading_anchors = 4  # the anchors that a forge makes of headings
myst_enable_extensions = ["deflist"]
# A name in a type that has no page of its own is no dead link.
nitpicky = False
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"Podium {release}"
html_static_path: list[str] = []
html_show_sourcelink = False
html_copy_source = False
