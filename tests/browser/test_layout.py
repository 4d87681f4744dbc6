"""Claims about the layout of every page, wide and on a phone: all controls in reach, all labels readable."""

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.browser.conftest import Open
from tests.browser.scene import Scene
from tests.browser.test_every_page import OVERFLOW, all_paths

PHONE: ViewportSize = {"width": 390, "height": 844}
DESK: ViewportSize = {"width": 1440, "height": 900}
FORMS = (
    "/notifications/new", "/budgets/new", "/departments/new", "/departments/research/new-project",
    "/projects/vision/change", "/access/grant", "/access/people/new", "/access/tokens/new",
    "/workloads/views/new", "/quotas/projects/vision/train", "/templates/vision/new", "/node-pools/new",
    "/node-pools/train/settings", "/node-pools/train/scale", "/services",
)  # fmt: skip
UNFOLD = """summary => new Promise(done => {
  const details = summary.parentElement;
  details.addEventListener('toggle', () => requestAnimationFrame(() => done(true)), { once: true });
  details.open = true;
})"""
FAULTS = """() => {
  const wide = document.documentElement.clientWidth, faults = [];
  const name = each => `${each.tagName.toLowerCase()}.${each.className} ${(each.innerText || each.ariaLabel || each.name || '').trim().slice(0, 40)}`;
  const scrolls = each => {
    for (let up = each.parentElement; up && up !== document.body; up = up.parentElement) {
      const style = getComputedStyle(up);
      if (/(auto|scroll)/.test(style.overflowX) && up.scrollWidth > up.clientWidth) return true;
      if (style.position === 'absolute' && /hidden/.test(style.overflow) && up.clientWidth <= 1) return true;
    }
    return false;
  };
  const shown = each => each.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true })
    && !each.closest('.visually-hidden, .sr-only, .skip');
  for (const each of document.querySelectorAll('a, button, input:not([type=hidden]), select, textarea, summary, label, .menu, legend')) {
    if (!shown(each) || each.closest('nav') && innerWidth < 600) continue;
    const box = each.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    if ((box.left < -0.5 || box.right > wide + 0.5) && !scrolls(each)) faults.push(`off screen: ${name(each)} ${Math.round(box.left)}..${Math.round(box.right)}`);
  }
  const texts = each => {
    const walk = document.createTreeWalker(each, NodeFilter.SHOW_TEXT), found = [];
    while (walk.nextNode()) if (walk.currentNode.data.trim() && !walk.currentNode.parentElement.closest('.visually-hidden')) found.push(walk.currentNode);
    return found;
  };
  const lines = nodes => new Set(nodes.flatMap(node => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return [...range.getClientRects()].map(box => Math.round(box.bottom / 8));
  })).size;
  for (const each of document.querySelectorAll('label, legend, summary, button, a.button')) {
    if (!shown(each)) continue;
    const nodes = texts(each), words = nodes.map(node => node.data).join(' ').trim().split(/\\s+/).length;
    if (words > 1 && lines(nodes) >= words) faults.push(`one word per line: ${name(each)}`);
  }
  const labels = [...document.querySelectorAll('label, legend')].filter(each => shown(each) && each.innerText?.trim());
  const boxes = labels.map(each => [each, each.getBoundingClientRect()]);
  for (const [one, a] of boxes) for (const [two, b] of boxes) {
    if (one === two || one.contains(two) || two.contains(one)) continue;
    if (a.top > b.top || a.top === b.top && a.left > b.left) continue;
    if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2) faults.push(`overlap: ${name(one)} / ${name(two)}`);
  }
  return faults;
}"""


def faults_of_layout(page: Page) -> list[str]:
    """Faults of the page as it stands, then with each of its menus and folded parts open."""
    found: list[str] = page.evaluate(FAULTS)
    count = page.locator("details:not([open]) > summary:visible").count()
    for number in range(count):
        folded = page.locator("details > summary:visible").nth(number)
        if folded.evaluate("each => each.parentElement.open"):
            continue
        folded.evaluate(UNFOLD)
        name = folded.inner_text()
        found += [f"with {name!r} open: {fault}" for fault in page.evaluate(FAULTS) if fault not in found]
        if page.evaluate(OVERFLOW) > 0:
            found.append(f"with {name!r} open the page scrolls sideways")
        folded.evaluate("each => { each.parentElement.open = false; }")
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_no_control_leaves_the_screen_and_no_label_is_squeezed(
    viewport: ViewportSize, opened: Open, scene: Scene
) -> None:
    faults: list[str] = []
    with opened("ada", viewport=viewport) as (page, _):
        for path in (*all_paths(scene), *FORMS):
            page.emulate_media(color_scheme="light")
            answer = page.goto(path, wait_until="networkidle")
            assert answer is not None
            assert answer.status == 200, path
            faults += [f"{path}: {fault}" for fault in faults_of_layout(page)]
            page.emulate_media(color_scheme="dark")
            faults += [f"{path}, dark: {fault}" for fault in page.evaluate(FAULTS)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
def test_date_filter_of_the_admin_site_can_be_used_on_the_first_visit(
    viewport: ViewportSize, opened: Open, scene: Scene
) -> None:
    """A click reaches every field: nothing lies over it."""
    with opened("ada", viewport=viewport) as (page, faults):
        page.goto("/admin/scheduler/eviction/", wait_until="networkidle")
        page.get_by_text("Filters").first.click()
        for name in ("at_from_0", "at_from_1", "at_to_0", "at_to_1"):
            page.locator(f"[name={name}]").click()
        page.locator("[name=at_to_0]").fill("2020-01-01")
        page.get_by_role("button", name="Apply Filters").click()
        expect(page.get_by_text("0 evictions")).to_be_visible()
        assert faults == []


def test_button_of_a_menu_stays_in_place_when_the_menu_opens(opened: Open) -> None:
    with opened("ada", viewport=DESK) as (page, _):
        page.goto("/quotas")
        button = page.locator("summary", has_text="Values")
        before = button.bounding_box()
        button.click()
        expect(page.get_by_role("group", name="Values")).to_be_visible()
        assert button.bounding_box() == before
        button.click()
        expect(page.get_by_role("group", name="Values")).to_be_hidden()
