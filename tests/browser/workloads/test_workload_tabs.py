"""Browser tests for the tabs of the workload page."""

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from projects.models import Workload
from tests import factories as make
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.data.workloads.long_log import write_log
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import NARROW
from tests.browser.driver.held_requests import hold_requests
from tests.support.present import present


@pytest.mark.heavy
def test_log_of_a_running_workload_is_one_click_away_and_above_the_fold(
    opened: Open, scene: Scene, home: Path
) -> None:
    workload = scene.workloads["diffusion-xl"]
    scene.pools["train"].runtime = "local"
    scene.pools["train"].save()
    write_log(workload, home)
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{workload.pk}")
        log = page.locator("#log pre")
        expect(log).to_contain_text("checkpoint of step 900")
        box = page.locator("#log").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, "the log ends above the fold"
        pods = page.get_by_label("Pod and run")
        second = str(pods.locator("option").nth(1).get_attribute("value"))
        pods.select_option(second)
        page.get_by_role("link", name="Full screen").click()
        expect(page).to_have_url(f"/workloads/{workload.pk}/logs#full&pod={second}")
        expect(pods).to_have_value(second)
        full = page.locator("#log-card").bounding_box()
        assert full is not None and full["height"] == 900
        pods.select_option(index=0)
        page.get_by_role("button", name="Exit full screen").click()
        expect(page.get_by_role("button", name="Full screen", exact=True)).to_be_focused()
        expect(log).to_contain_text("checkpoint of step 900")
        expect(page.get_by_role("button", name="Search log")).to_be_visible()
        assert faults == []


@pytest.mark.heavy
def test_tabs_work_with_the_keyboard_and_without_scripts(opened: Open, scene: Scene) -> None:
    workload = scene.workloads["detr-long"]
    with opened("dave", java_script_enabled=False) as (page, _):
        page.goto(f"/workloads/{workload.pk}")
        tabs = page.get_by_role("navigation", name="Workload", exact=True)
        tabs.get_by_role("link", name="Overview").focus()
        for _ in range(tabs.get_by_role("link").all_inner_texts().index("Timeline")):
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"/workloads/{workload.pk}/timeline")
        expect(tabs.locator("[aria-current=page]")).to_have_text("Timeline")
        expect(page.get_by_role("heading", name="Timeline")).to_be_visible()


@pytest.mark.heavy
def test_header_of_every_tab_shows_state_changes(opened: Open, scene: Scene) -> None:
    workload = scene.workloads["ablation-7"]
    with opened("ada") as (page, faults):
        for tab in ("/logs", "/spec", "/timeline", ""):
            Workload.objects.filter(pk=workload.pk).update(phase="pending")
            page.goto(f"/workloads/{workload.pk}{tab}")
            expect(page.locator(".live")).to_have_text("Connected")
            expect(page.locator("#head h1")).to_contain_text("Pending")
            Workload.objects.filter(pk=workload.pk).update(phase="suspended")
            page.evaluate("document.dispatchEvent(new CustomEvent('berth:done', {detail: {message: ''}}))")
            expect(page.locator("#head h1")).to_contain_text("Suspended")
        assert faults == []


@pytest.mark.heavy
def test_elastic_workload_is_readable_on_a_phone(opened: Open, scene: Scene) -> None:
    workload = scene.workloads["segment-eval"]
    with opened("dave", viewport=NARROW) as (page, faults):
        page.goto(f"/workloads/{workload.pk}")
        expect(page.locator("#head")).to_contain_text("4 replicas (min 4, max 7)")
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        assert accessibility_faults(page) == []
        assert faults == []


def test_card_states_that_the_next_cycle_starts_the_workload(opened: Open, scene: Scene) -> None:
    blocker = {"reason": "WouldExceedFairShare", "message": "1 GPU is missing.", "numbers": {}}
    explanation = {"blockers": [blocker], "queue_position": 1, "pool": "train"}
    workload = make.workload(
        scene.workloads["policy-sweep"].project, "grip", pools=["train"], reason="WouldExceedFairShare",
        explanation=explanation, explained_at=make.ago(seconds=2),
    )  # fmt: skip
    with opened("ada") as (page, faults):
        page.goto(f"/workloads/{workload.pk}")
        expect(page.locator("#log-card")).to_be_hidden()  # the workload has no output yet
        reasons = page.get_by_role("region", name="Pending reason")
        expect(reasons.get_by_role("heading")).to_have_text("Starts in the next cycle")
        expect(reasons).not_to_contain_text("1 GPU is missing.")
        expect(page.get_by_role("heading", name="Smallest change")).to_have_count(0)
        # The workload may start while the page requests this card.
        page.locator("#why").evaluate("element => element.remove()")
        page.locator("#smallest-change").evaluate(
            "part => htmx.ajax('GET', part.dataset.liveUrl, {source: part, target: part, swap: 'innerHTML'})"
        )
        assert faults == []


def test_age_of_a_new_workload_is_updated_every_second(opened: Open, scene: Scene) -> None:
    submitted = timezone.now() - timedelta(seconds=4)
    workload = make.workload(scene.workloads["policy-sweep"].project, "fresh", submitted_at=submitted)
    # A context with other options is not reused, so the clock of later tests is not paused.
    with opened("ada", timezone_id="Europe/Berlin") as (page, faults):
        page.clock.install(time=submitted)
        page.clock.pause_at(submitted + timedelta(seconds=5))
        page.goto(f"/workloads?search={workload.name}")
        age = page.locator("td[data-label=Submitted] time").first
        expect(age).to_have_text("5 s ago")
        for seconds in (6, 7):
            page.clock.run_for(1000)
            expect(age).to_have_text(f"{seconds} s ago")
        assert faults == []


def test_times_in_inserted_elements_are_converted_before_the_browser_paints_them(opened: Open) -> None:
    insert = """async (moment) => {
        document.body.insertAdjacentHTML("beforeend", `<p><time datetime="${moment}">raw</time></p>`);
        await Promise.resolve();
        return document.body.lastElementChild.textContent;
    }"""
    with opened("dave") as (page, faults):
        page.goto("/workloads")
        moment = (timezone.now() - timedelta(hours=2, minutes=5)).isoformat()
        assert page.evaluate(insert, moment) == "2 h 5 min ago"
        assert faults == []


@pytest.mark.heavy
def test_edit_page_of_a_queued_workload_applies_its_smallest_change(opened: Open, scene: Scene) -> None:
    workload = scene.workloads["policy-sweep"]
    with opened("ada") as (page, faults):
        page.goto(f"/workloads/{workload.pk}/edit")
        expect(page.get_by_text("No changes yet")).to_be_visible()
        change = page.locator("#smallest-change")
        expect(change).to_contain_text("The workload would start")
        held = hold_requests(page, "**/edit/prediction")
        change.get_by_role("button", name="Apply to the form").click()
        expect(page.get_by_role("region", name="Changes").locator("dt")).not_to_have_count(0)
        expect(page.get_by_text("No changes yet")).to_be_hidden()
        page.get_by_label("Command", exact=True).fill("python train.py --epochs 21")
        expect(page.get_by_role("region", name="Changes")).to_contain_text("--epochs 21")
        page.route("**/edit/prediction", lambda route: route.continue_())
        for route in held:  # the first response belongs to a part that the second change has replaced
            route.continue_()
        expect(page.get_by_role("region", name="Changes")).to_contain_text("6 → 5")
        expect(page.locator(".outcome > div").filter(has_text="Expected start")).to_contain_text("→ now")
        page.wait_for_load_state("networkidle")
        assert faults == []


@pytest.mark.heavy
def test_on_phones_the_verdict_links_to_the_prediction_below_the_form(opened: Open, scene: Scene) -> None:
    workload = scene.workloads["policy-sweep"]
    with opened("ada", viewport={"width": 390, "height": 844}) as (page, faults):
        page.goto(f"/workloads/{workload.pk}/edit")
        title = page.locator("#prediction-title")
        expect(title).to_be_visible()
        expect(title).not_to_be_in_viewport()
        page.get_by_role("link", name="Details", exact=True).click()
        expect(title).to_be_in_viewport()
        expect(page.locator("#smallest-change")).to_be_visible()
        assert accessibility_faults(page) == []
        assert faults == []


# Texts of an axis that overlap the next one or extend beyond the axis.
MISPLACED_LABELS = """(axis) => {
  const area = axis.getBoundingClientRect();
  const texts = [...axis.querySelectorAll("text")].filter((text) => text.getClientRects().length);
  const boxes = texts.map((text) => text.getBoundingClientRect());
  const isOutside = (box) => box.left < area.left - 1 || box.right > area.right + 1;
  return texts.filter((text, place) => isOutside(boxes[place])
    || (place && boxes[place].left < boxes[place - 1].right)).map((text) => text.textContent);
}"""


@pytest.mark.heavy
@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_timeline_connects_the_expected_start_to_the_bar(opened: Open, scene: Scene, width: int) -> None:
    # Half past an hour, so that no full hour is close to an end of the axis.
    begin = (timezone.now() - timedelta(hours=1)).replace(minute=30, second=0)
    start = begin + timedelta(hours=3)
    waiting = make.workload(
        scene.workloads["policy-sweep"].project, "waiting", reason="InsufficientCapacity",
        explained_at=make.ago(seconds=5), since=begin, explanation={"expected_start": start.isoformat()},
    )  # fmt: skip
    make.event(waiting, "submitted", "Submitted.", at=begin)
    with opened("ada", viewport={"width": width, "height": 900}, timezone_id="UTC") as (page, faults):
        page.goto(f"/workloads/{waiting.pk}/timeline")
        axis = page.locator(".periods .time-axis")
        expect(axis.locator("text").first).to_have_text(f"{begin:%H:%M}")
        assert axis.evaluate(MISPLACED_LABELS) == []
        drawn = "all => all.filter(each => getComputedStyle(each).display !== 'none').length"
        assert axis.locator("line").evaluate_all(drawn) == axis.locator("text").evaluate_all(drawn)
        end, mark = (
            page.locator(".period-end").bounding_box(),
            page.locator(".period-bar .end").bounding_box(),
        )
        leader = page.locator(".period-marks line").first.bounding_box()
        assert end and mark and leader
        assert abs(end["x"] + end["width"] - mark["x"]) <= 2 and abs(leader["x"] - mark["x"]) <= 2
        assert leader["y"] <= end["y"] + end["height"] + 1
        assert mark["y"] <= leader["y"] + leader["height"] + 1
        assert faults == []


@pytest.mark.heavy
def test_pod_bars_are_aligned_and_the_id_fits_on_one_line(opened: Open, scene: Scene) -> None:
    tops = "all => all.map(each => Math.round(10 * each.getBoundingClientRect().top) / 10)"
    with opened("dave", viewport={"width": 1024, "height": 768}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['diffusion-xl'].pk}")
        bars = page.locator("#pod-bars li")
        expect(bars).to_have_count(8)
        rows = set(bars.evaluate_all(tops))
        assert len(set(bars.locator(".bar").evaluate_all(tops))) == len(rows)
        lines = "code => code.getClientRects().length"
        assert page.locator("#workload-id").evaluate(lines) == 1
        assert faults == []


@pytest.mark.heavy
def test_facts_and_events_of_a_workload_that_has_not_run_stand_side_by_side(
    opened: Open, scene: Scene
) -> None:
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{scene.workloads['paused-run'].pk}")
        facts, events = (present(each.bounding_box()) for each in page.locator("#side > section").all())
        assert facts["y"] == events["y"] and facts["width"] == events["width"]
        assert faults == []


@pytest.mark.heavy
def test_wrapped_lines_of_a_disclosure_are_aligned_with_its_first_line(opened: Open, scene: Scene) -> None:
    lefts = """summary => {
        const range = document.createRange();
        range.selectNodeContents(summary);
        const left = box => Math.round(box.left - summary.getBoundingClientRect().left);
        const boxes = [...range.getClientRects()].map(box => [Math.round(box.top / 8), left(box)]);
        return [...new Map(boxes.reverse()).values()];
    }"""
    with opened("ada", viewport={"width": 390, "height": 844}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['policy-sweep'].pk}")
        starts = page.locator("#ordering-key > summary").evaluate(lefts)
        assert len(starts) > 1 and max(starts) - min(starts) <= 1, starts
        assert min(starts) > 5, "the marker stands before the text"
        assert faults == []
