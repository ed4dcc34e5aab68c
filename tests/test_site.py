"""The documentation site as it is built: on a phone nothing that is read scrolls sideways, and every link leads somewhere."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from dashboard.browser import chromium, find_chromium

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 375
# What is cut off at the right, or can be moved sideways. Code keeps its lines and scrolls by itself.
_TOO_WIDE = """(() => {
  const room = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > room) found.push(`the page: ${document.documentElement.scrollWidth}`);
  for (const each of document.querySelectorAll(".md-content :is(h1, h2, h3, h4, p, li, dd, td, th, blockquote, img, svg, summary, label)")) {
    const box = each.getBoundingClientRect();
    if (!each.closest("pre, thead") && box.width && box.right > room + 1) found.push(`${each.tagName} to ${Math.round(box.right)}: ${each.textContent.trim().slice(0, 80)}`);
  }
  return found.slice(0, 5);
})()"""

# Another page in the place of this one, its pictures included.
_SHOW = """(text, address) => {
  const read = new DOMParser().parseFromString(text, "text/html");
  document.head.querySelector("base")?.remove();
  document.head.append(Object.assign(document.createElement("base"), {href: address}));
  document.body.replaceWith(document.adoptNode(read.body));
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built where nobody else builds it."""
    folder = tmp_path_factory.mktemp("site")
    settings = (ROOT / "zensical.toml").read_text()
    (folder / "zensical.toml").write_text(settings.replace('"build/docs"', '"docs"').replace('"build/site"', '"site"'))
    subprocess.run([sys.executable, str(ROOT / "docs" / "site.py"), str(folder / "docs")], check=True)
    program = Path(sys.executable).parent / "zensical"
    built = subprocess.run([program, "build", "--strict"], cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder / "site"


@pytest.mark.skipif(find_chromium() is None, reason="no Chromium: apt-get install chromium, or ALLOT_CHROMIUM=/path/to/it")  # fmt: skip
def test_no_page_scrolls_sideways_on_a_phone(site: Path) -> None:
    wide: dict[str, list[str]] = {}
    texts = {path: path.read_text() for path in sorted(site.rglob("*.html"))}
    assert len(texts) > 80
    # One page is opened, and the others take its place: all have the same styles, and opening each takes ten times as long.
    assert len({_styles(text) for text in texts.values()}) == 1
    with chromium() as browser, browser.page(width=WIDTH, height=700) as page:
        first = (site / "index.html").as_uri()
        page.go(first)
        page.until(f"location.href === {first!r} && document.readyState === 'complete'", first)
        for path, text in texts.items():
            page.evaluate(f"({_SHOW})({json.dumps(text)}, {json.dumps(path.as_uri())})")
            if found := page.evaluate(_TOO_WIDE):
                wide[str(path.relative_to(site))] = found
    assert not wide


def _styles(text: str) -> tuple[str, ...]:
    """The names of a page's style sheets."""
    links = re.findall(r"<link\b[^>]*\brel=\"?stylesheet\"?[^>]*>", text)
    return tuple(name for link in links for name in re.findall(r"([^/\"=]+\.css)", link))


def test_every_link_leads_to_a_page_and_a_place_on_it(site: Path) -> None:
    texts = {path: path.read_text() for path in site.rglob("*.html")}
    places = {path: set(re.findall(r'\bid="([^"]*)"', text)) for path, text in texts.items()}
    lost = []
    for path, text in texts.items():
        if path.name == "404.html":
            # Its addresses begin at the root of a server.
            continue
        for link in set(re.findall(r'\b(?:href|src)="([^"]*)"', text)):
            target, _, anchor = unquote(html.unescape(link)).partition("#")
            if "://" in target or target.startswith(("mailto:", "data:")):
                continue
            meant = (path.parent / target).resolve() if target else path
            meant = meant / "index.html" if meant.is_dir() else meant
            is_there = meant in texts or meant.is_file()
            if not is_there or (anchor and meant in texts and anchor not in places[meant]):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert not lost
