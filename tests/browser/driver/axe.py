"""Accessibility checks with axe."""

from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

# Returns only the serious violations, because a report on every element is slow to send.
RUN = """async ([part, options]) => (await axe.run(part, {resultTypes: ['violations'], ...options}))
  .violations
  .filter(each => ['serious', 'critical'].includes(each.impact))
  .flatMap(each => each.nodes.slice(0, 3).map(
    node => `${each.id}: ${node.html.slice(0, 160)} ${(node.failureSummary ?? '').slice(0, 300)}`))"""


def accessibility_faults(page: Page, part: str = "html", **options: Any) -> list[str]:
    """Return the serious accessibility violations in part of the page. `options` are passed to `axe.run`."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    faults: list[str] = page.evaluate(RUN, [part, options])
    return faults
