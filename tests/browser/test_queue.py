"""Browser tests for the queue page: columns fit, explanations open next to their buttons, and filters can be
cleared, as on other lists.
"""

import re

import pytest
from playwright.sync_api import ViewportSize, expect

from projects.models import Workload
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import NARROW, WIDE, open_settled

OVERFLOW = "wrap => wrap.scrollWidth - wrap.clientWidth"
ORDERING = [
    "research: within its quota", "rank 0", "would exceed its fair share",
    "dominant share 0.500, 0.600 with this",
    "vision: would exceed its quota", "rank 0", "would exceed its fair share",
    "dominant share 0.500, 0.600 with this",
]  # fmt: skip
IS_NEXT_TO_BUTTON = """width => {
  const popover = document.querySelector(".popover:popover-open");
  if (!popover) return false;
  const box = popover.getBoundingClientRect();
  const button = document.querySelector(`[popovertarget="${popover.id}"]`);
  const row = width > 768 && button.closest("td.position, td.start")?.parentElement;
  const at = (row || button).getBoundingClientRect(), left = button.getBoundingClientRect().left;
  const distance = Math.min(Math.abs(box.top - at.bottom), Math.abs(at.top - box.bottom));
  return distance < 12 && box.left >= 0 && box.right <= width && box.left <= left && left <= box.right;
}"""
LAPTOP: ViewportSize = {"width": 1280, "height": 800}


@pytest.mark.heavy
@pytest.mark.parametrize("viewport", [WIDE, LAPTOP, NARROW], ids=["wide", "laptop", "phone"])
def test_explanations_open_next_to_their_buttons(opened: Open, scene: Scene, viewport: ViewportSize) -> None:
    explanation = {
        "pool": "train",
        "queue_position": 1,
        "ordering": ORDERING,
        "blockers": [{"reason": "WouldExceedFairShare", "message": "More.", "numbers": {}}],
        "expected_start_reason": "no declared runtime says when enough GPUs become free",
    }
    pending = scene.workloads["policy-sweep"]
    Workload.objects.filter(pk=pending.pk).update(
        phase="pending",
        reason="WouldExceedFairShare",
        message="vision would have 14 of 11 GPUs.",
        explanation=explanation,
    )
    with opened("ada", viewport=viewport) as (page, faults):
        open_settled(page, "/queue?pool=train")
        row = page.get_by_role("row").filter(has_text=pending.name)
        expect(row).to_contain_text("vision would have 14 of 11 GPUs")
        assert page.locator(".table-wrap").evaluate(OVERFLOW) == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        for button, words in (
            (
                row.get_by_role("button", name="Queue position"),
                "research would exceed its fair share and vision its quota",
            ),
            (row.get_by_role("button", name="Expected start unknown"), "No declared runtime says when"),
        ):
            button.click()
            popover = page.locator(".popover:popover-open")
            expect(popover).to_be_visible()
            expect(popover).to_contain_text(words)
            # A live update replaces the row and opens the popover again.
            page.wait_for_function(IS_NEXT_TO_BUTTON, arg=viewport["width"])
            page.keyboard.press("Escape")
        assert faults == []


def test_queue_filters_expand_on_a_phone_and_stay_open(opened: Open) -> None:
    with opened("ada", viewport={"width": 390, "height": 844}, has_touch=True) as (page, faults):
        open_settled(page, "/queue")
        pool, button = page.locator("#f-pool"), page.get_by_role("button", name="Filters")
        expect(pool).to_be_hidden()
        button.click()
        expect(pool).to_be_visible()
        widths = page.locator(".queue-filters select").evaluate_all(
            "all => all.map(each => each.offsetWidth)"
        )
        assert len(widths) >= 3 and len(set(widths)) == 1
        pool.select_option("train")
        expect(page).to_have_url(re.compile(r"pool=train"))
        expect(page.get_by_role("button", name="Filters (1)")).to_have_attribute("aria-expanded", "true")
        expect(page.locator("#f-pool")).to_be_visible()
        page.set_viewport_size({"width": 1440, "height": 900})
        expect(button).to_be_hidden()
        assert faults == []


@pytest.mark.heavy
@pytest.mark.parametrize(("width", "height"), [(1440, 62), (1024, 76)], ids=["two", "three"])
def test_rows_have_at_most_two_lines_or_three_in_medium_windows(
    opened: Open, width: int, height: int
) -> None:
    with opened("ada", viewport={"width": width, "height": 900}) as (page, faults):
        open_settled(page, "/queue")
        starts = page.locator("td.start:has(time)")
        assert starts.count() >= 3
        for text in starts.all_inner_texts():
            assert re.fullmatch(r"in [\d a-z\u00a0]+\n\d\d:\d\d( to .*)?\s*", text), text
        heights = page.locator(".queue-rows tbody tr:has(.pick)").evaluate_all(
            "rows => rows.map(row => row.offsetHeight)"
        )
        assert max(heights) <= height, heights
        assert page.locator("th .sub:visible").evaluate_all(
            "all => all.every(each => each.scrollWidth <= each.offsetWidth)"
        )
        assert page.locator(".table-wrap").evaluate(OVERFLOW) == 0
        starts.last.get_by_role("button").click()
        popover = page.locator(".popover:popover-open")
        expect(popover).to_contain_text(
            re.compile("after .*Pending reason.*Would exceed fair share", re.DOTALL)
        )
        page.keyboard.press("Escape")
        page.get_by_role("searchbox").fill("no such workload")
        page.get_by_role("link", name="Show all pending workloads").click()
        expect(starts.first).to_be_visible()
        assert faults == []


@pytest.mark.heavy
def test_queued_workload_takes_three_lines_on_a_phone(opened: Open) -> None:
    with opened("ada", viewport=NARROW) as (page, faults):
        open_settled(page, "/queue")
        rows = page.locator(".queue-rows tbody tr:has(.pick)")
        assert rows.count() >= 5
        assert max(rows.evaluate_all("rows => rows.map(row => row.offsetHeight)")) <= 90
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert faults == []


@pytest.mark.heavy
@pytest.mark.parametrize("path", ["/workloads", "/queue"])
def test_filters_in_use_can_be_cleared(opened: Open, path: str) -> None:
    with opened("ada") as (page, faults):
        page.goto(path)
        clear = page.get_by_role("link", name="Clear filters")
        expect(page.locator("#f-project")).to_be_visible()
        expect(clear).to_be_hidden()
        page.locator("#f-project").select_option("vision")
        clear.click()
        expect(page).to_have_url(re.compile(f"{path}$"))
        expect(page.locator("#f-project")).to_have_value("")
        expect(clear).to_be_hidden()
    assert faults == []


@pytest.mark.heavy
@pytest.mark.parametrize("width", [1440, 1024])
def test_list_of_allowed_pools_leaves_room_for_the_expected_start(
    opened: Open, scene: Scene, width: int
) -> None:
    pools = ["local", "serve", "train"]
    pending = scene.workloads["policy-sweep"]
    Workload.objects.filter(pk=pending.pk).update(pools=pools, explanation=None)
    with opened("ada", viewport={"width": width, "height": 800}) as (page, faults):
        open_settled(page, "/queue?sort=-expected")
        cell = page.get_by_role("row").filter(has_text=pending.name).locator(".sub.pool")
        expect(cell.get_by_title("Also allows serve, train")).to_have_text("local +2 other pools")
        assert page.locator(".table-wrap").evaluate(OVERFLOW) == 0
        assert page.locator("td.why").first.evaluate("cell => cell.offsetWidth") >= 130
        assert faults == []


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "phone"])
def test_selected_workloads_are_suspended_from_the_queue(
    opened: Open, scene: Scene, viewport: ViewportSize
) -> None:
    pending = scene.workloads["policy-sweep"]
    with opened("ada", viewport=viewport) as (page, faults):
        open_settled(page, "/queue")
        page.keyboard.press("j")
        expect(page.locator("tbody tr:has(.pick) th > a").first).to_be_focused()  # no pool
        page.get_by_role("checkbox", name=f"Select {pending.name}").check()
        edit = page.get_by_role("link", name="Edit the selected workload")
        expect(edit).to_have_attribute("href", f"/workloads/{pending.pk}/edit")
        page.get_by_role("checkbox", name="Select lr-sweep").check()
        retry = "Retry failed tasks of 1 array" if viewport == WIDE else "Retry failed"
        expect(page.get_by_role("button", name=retry, exact=True)).to_be_visible()
        page.get_by_role("checkbox", name="Select lr-sweep").uncheck()
        page.get_by_role("button", name="Suspend selected workloads").click()
        page.get_by_role("dialog").get_by_role("button", name="Suspend 1 workload").click()
        expect(page.get_by_role("row").filter(has_text=pending.name)).to_have_count(0)
        expect(page).to_have_url(re.compile("/queue$"))
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert faults == []
    pending.refresh_from_db()
    assert pending.phase == "suspended"
