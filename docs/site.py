"""What mkdocs does besides: pages that lie beside the folder of the documentation become part of the site.

The same Markdown is read in the repository and on the site. Links to the project's own pages (ARCHITECTURE.md and so on) lead to
copies of them; links to source code and examples become plain names, as a site has no source tree.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Where a page of the repository is on the site.
PROJECT_PAGES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CONVENTIONS.md": "project/conventions.md",
    "ROADMAP.md": "project/roadmap.md",
    "SECURITY.md": "project/security.md",
    "examples/README.md": "project/examples.md",
}
_SITE_PAGES = {site: page for page, site in PROJECT_PAGES.items()}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the project's pages."""
    for page, site in PROJECT_PAGES.items():
        files.append(File.generated(config, site, content=(ROOT / page).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_rest: Any) -> str:
    """Makes links fit the site."""
    site = page.file.src_uri
    here = _SITE_PAGES.get(site, f"docs/{site}")
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part if part.startswith("```") else _LINK.sub(lambda found: _link(found, here, site), part) for part in parts
    )


def _link(found: re.Match[str], here: str, site: str) -> str:
    mark, text, target, anchor = found.groups()
    if "://" in target:
        return found.group(0)
    meant = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    if meant == "README.md":
        wanted = "index.md"
    elif meant in PROJECT_PAGES:
        wanted = PROJECT_PAGES[meant]
    elif meant.startswith("docs/"):
        wanted = meant.removeprefix("docs/")
    else:
        return str(text)
    way = posixpath.relpath(wanted, posixpath.dirname(site) or ".")
    return f"{mark}[{text}]({way}{anchor or ''})"
