"""Settings of the documentation site. `make docs` builds it into `docs/_build`; every warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

from cotransport.version import __version__

sys.path.insert(0, str(Path(__file__).parent))  # for the extension `generated`

project = "cotransport"
author = "the cotransport contributors"
version = release = __version__
language = "en_GB"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon", "generated"]
exclude_patterns = ["_build"]

# The names below are the only place that knows where the code behind the reference pages lives.
reference_recipe = "cotransport.experiments.recipe:Recipe"
reference_settings = "cotransport.settings.sections:Settings"
reference_methods = "cotransport.methods:known_methods"
reference_commands = "cotransport.cli.main:app"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
default_role = "literal"  # a name in single backticks in a docstring is code
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
smartquotes = False  # two dashes are an option, not a dash
nitpick_ignore_regex = [("py:.*", r".*")]  # types of other libraries in signatures; links between pages are checked

html_theme = "furo"
html_title = "cotransport"
html_copy_source = False
html_show_sphinx = False
