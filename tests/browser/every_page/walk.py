"""Load each page once as an admin and run all checks on it."""

from dataclasses import dataclass, field

from playwright.sync_api import Page

from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import NARROW, WIDE, Faults, open_settled
from tests.browser.every_page.pages import DUPLICATE_IDS, UNNAMED, layout_faults

MOST_SCRIPT_BYTES = 200_000
MOST_SCRIPT_BYTES_OF_TERMINALS = 420_000  # limit that includes the terminal emulator (290 kB)
# Scripts on the page and their imports. The cache serves the second fetch.
SCRIPT_BYTES = """async () => {
    const loaded = performance.getEntriesByType('resource').map(each => each.name);
    const named = [...document.scripts].map(each => each.src);
    const all = [...new Set([...loaded, ...named])].filter(each => each.endsWith('.js'));
    const text = async each => (await fetch(each, {cache: 'force-cache'})).text();
    const texts = await Promise.all(all.map(text));
    return texts.reduce((sum, each) => sum + each.length, 0);
}"""
# Tables with two rows or more that cannot be sorted or exported, with their captions.
LACKING = """[...document.querySelectorAll('main table')]
    .filter(table => table.tBodies[0]?.rows.length > 1)
    .filter(table => !table.querySelector('input:not([name=w], [type=checkbox])'))
    .map(table => {
        const card = table.closest('.card') ?? document.querySelector('main');
        const tree = table.querySelector('tr.group, [rowspan]') !== null;
        const sorts = tree || table.querySelector('thead a, thead .sorter') !== null;
        const leaves = card.querySelector('a[href*="format="], .table-foot button') !== null;
        return sorts && leaves ? null : [table.caption?.textContent, {sorts, leaves}];
    }).filter(Boolean)"""
CHARTS = """[...document.querySelectorAll('main .step-chart, main .heatmap[role=img]')].filter(chart => {
    const card = chart.closest('.card');
    return !card.querySelector('table, a[download]');
}).map(chart => chart.outerHTML.slice(0, 120))"""


@dataclass
class Visit:
    """One loaded page and the results of its checks."""

    path: str
    status: int
    url: str
    mains: int
    headings: int
    script_bytes: int
    unnamed: list[str]
    duplicate_ids: list[str]
    tables: list[object] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    layout: list[str] = field(default_factory=list)


@dataclass
class Walk:
    pages: list[Visit]
    faults: Faults


def visit(page: Page, path: str) -> Visit:
    """Load the page and run the checks that apply to every page."""
    response = open_settled(page, path)
    return Visit(
        path=path,
        status=response.status,
        url=page.url,
        mains=page.locator("main").count(),
        headings=page.locator("h1").count(),
        script_bytes=page.evaluate(SCRIPT_BYTES),
        unnamed=page.evaluate(UNNAMED),
        duplicate_ids=page.evaluate(DUPLICATE_IDS),
    )


def inspect(page: Page, path: str) -> Visit:
    """Load the page and check its tables, charts and accessibility, and its layout at both widths."""
    open_page = visit(page, path)
    open_page.tables = page.evaluate(LACKING) + page.evaluate(CHARTS)
    open_page.violations = accessibility_faults(page)
    open_page.layout = [f"wide: {fault}" for fault in layout_faults(page)]
    page.set_viewport_size(NARROW)
    open_page.layout += [f"on a phone: {fault}" for fault in layout_faults(page)]
    page.set_viewport_size(WIDE)
    return open_page


def inspect_dark(page: Page, path: str) -> Visit:
    """Load the page in the dark theme and check its contrast and its layout at both widths."""
    open_page = visit(page, path)
    open_page.layout = [f"wide, dark: {fault}" for fault in layout_faults(page)]
    faults = accessibility_faults(page, runOnly=["color-contrast"])
    open_page.violations = [f"dark: {fault}" for fault in faults]
    page.set_viewport_size(NARROW)
    open_page.layout += [f"on a phone, dark: {fault}" for fault in layout_faults(page)]
    page.set_viewport_size(WIDE)
    return open_page
