"""How `make site` builds the pages: Sphinx with MyST, from the tree as it is."""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from ccm import __version__  # noqa: E402

project, release, language = "ccm-supervisor", __version__, "en"
author = copyright = "The authors of ccm-supervisor"  # noqa: A001 - Sphinx's name
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
]
root_doc = "docs/site/index"
include_patterns = ["docs/**", "*.md", "deploy/chart/README.md", "tests/README.md"]
exclude_patterns = ["docs/decisions/0000-template.md"]

# Anchors of pages are those that the forge makes; what is no page is a file to download.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = [
    "myst.xref_missing",
    "toc.not_included",
    "misc.highlighting_failure",
    "ref.python",
]

default_role = "code"  # docstrings write code in single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False, "show-inheritance": True}
nitpicky = False

html_theme = "furo"
html_title = f"ccm-supervisor {release}"
html_copy_source = False
html_extra_path = ["first"]  # the page at the root, which leads to the index
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
if source := os.environ.get("SOURCE_URL", ""):
    html_theme_options |= {
        "source_repository": source,
        "source_branch": "main",
        "source_directory": "",
    }
copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True


def _first_in_search() -> str:
    """JavaScript by which tutorials and how-to guides stand before equal results of the search."""
    index = (ROOT / "docs" / "site" / "index.md").read_text()
    guides = [part for part in index.split("```{toctree}") if ":caption: " in part][:2]
    pages = [line[1:] for part in guides for line in part.split() if line.startswith("/")]
    return (
        f"const guides = new Set({json.dumps(pages)});\n"
        "var Scorer = {score: ([page, , , , score, , kind]) =>\n"
        "  score + (kind === 'title' ? 50 : 0) + (guides.has(page) ? 3 : 0),\n"
        "  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5},\n"
        "  objPrioDefault: 0, title: 15, partialTitle: 7, term: 5, partialTerm: 2};\n"
    )


html_search_scorer = str(ROOT / "build" / "search.js")
Path(html_search_scorer).parent.mkdir(exist_ok=True)
Path(html_search_scorer).write_text(_first_in_search())
