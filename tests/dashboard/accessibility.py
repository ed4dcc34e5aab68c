"""What axe has against a page, in words. axe-core comes with the package axe-core-python."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from dashboard.browser import Page

_RULES = '["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]'


def violations(page: Page) -> list[str]:
    """Of the rules of WCAG 2.1 AA, and what is good practice besides."""
    if not page.evaluate("typeof axe === 'object'"):
        page.evaluate(files("axe_core_python").joinpath("axe.min.js").read_text())
    found: list[dict[str, Any]] = page.evaluate(
        f"axe.run(document, {{runOnly: {_RULES}, resultTypes: ['violations'], preload: false}}).then(found => "
        "found.violations.map(each => ({id: each.id, help: each.help, nodes: each.nodes.map(node => node.html)})))"
    )
    return [f"{each['id']}: {each['help']}: {each['nodes'][:3]}" for each in found]
