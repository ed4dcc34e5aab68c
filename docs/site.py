"""Makes the folder that the documentation site is built from: `python docs/site.py [FOLDER]`, then `zensical build`.

The same Markdown is read in the repository and on the site. Links to the project's own pages (ARCHITECTURE.md and so on) lead to
copies of them; links to source code and examples become plain names, as a site has no source tree.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
# What zensical.toml calls docs_dir.
FOLDER = ROOT / "build" / "docs"
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
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]+)(#[^)]*)?\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_CONSOLE = "```console\n"
# Columns stay columns, and scroll where they are wider than the screen; sentences wrap.
_IS_ROW = re.compile(r"\S {2,}\S")
_WIDTH = 80


def prepare(folder: Path = FOLDER) -> None:
    """Make the folder anew."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for page in DOCS.rglob("*.md"):
        site = page.relative_to(DOCS).as_posix()
        _write(folder / site, fitted(page.read_text(), f"docs/{site}", site))
    for name, site in PROJECT_PAGES.items():
        _write(folder / site, fitted((ROOT / name).read_text(), name, site))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def fitted(markdown: str, here: str, site: str) -> str:
    """A page with links that fit the site, and with blocks that say whether they wrap. here: the page in the repository."""
    return "".join(
        _block(part) if part.startswith("```") else _LINK.sub(lambda found: _link(found, here, site), part)
        for part in _FENCED.split(markdown)
    )


def _block(block: str) -> str:
    if not block.startswith(_CONSOLE):
        return block
    wide = [line for line in block.splitlines() if len(line) > _WIDTH]
    if not wide or any(_IS_ROW.search(line.strip()) for line in wide):
        return block
    return "``` { .console .wrapped }\n" + block.removeprefix(_CONSOLE)


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


if __name__ == "__main__":
    prepare(*map(Path, sys.argv[1:]))
