"""Browser tests for windows that are wider than a phone but too narrow for all columns."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import ViewportSize, expect

from projects.models import Workload
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.chromium import WIDE

pytestmark = pytest.mark.heavy

MEDIUM: ViewportSize = {"width": 1024, "height": 768}


@pytest.mark.parametrize(
    "path",
    [
        "/queue",
        "/workloads",
        "/workloads?state=all",
        "/quotas?pool=train",
        "/fair-share?pool=train",
        "/node-pools",
        "/usage",
        "/schedules",
        "/secrets",
        "/notifications",
        "/evictions",
        "/decisions",
    ],
)
def test_tables_fit_in_a_medium_width_window(opened: Open, path: str) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto(path)
        hidden = "tables => tables.map(table => table.scrollWidth - table.clientWidth)"
        widths = page.locator(".table-wrap").evaluate_all(hidden)
        assert widths and max(widths) <= 0, f"hidden pixels of the tables: {widths}"
        assert faults == []


def test_columns_hidden_in_a_medium_width_window_are_replaced_by_notes(opened: Open) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto("/queue")
        row = page.get_by_role("row").filter(has_text="policy-sweep")
        assert re.search(r"\bfor 2[5-7]\smin", row.inner_text())
        assert not page.get_by_role("columnheader", name="Pending", exact=True).is_visible()
        assert faults == []


def test_workload_kind_is_shown_in_a_medium_width_window(opened: Open) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto("/workloads")
        for name, kind in (("sim-debug", "Interactive session"), ("lr-sweep", "Array of 120 tasks")):
            mark = page.get_by_role("row", name=re.compile(f"Select {name}")).get_by_title(kind)
            expect(mark).to_be_visible()
        assert faults == []


def test_workload_rows_have_the_same_height_in_a_medium_width_window(opened: Open) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto("/workloads")
        rows = page.locator(".workload-rows tbody tr").filter(has_not_text=re.compile("Failed"))
        heights = rows.evaluate_all("all => all.map(row => Math.round(row.getBoundingClientRect().height))")
        assert len(heights) > 10 and max(heights) - min(heights) <= 1
        facts = "all => all.map(each => each.innerText.replace(/\\s*\\u00b7\\s*/g, ' '))"
        assert "robotics train" in page.locator(".workload-rows .facts").evaluate_all(facts)[2]
        assert faults == []


def test_gpu_column_includes_the_runtime_up_to_1280_pixels(opened: Open) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        header = page.get_by_role("columnheader", name="Runtime")
        row = page.get_by_role("row", name=re.compile("Select vit-baseline"))
        page.goto("/workloads?state=all")
        expect(row.locator(".sub").get_by_text("ran for")).to_be_visible()
        expect(header).to_be_hidden()
        page.set_viewport_size({"width": 1280, "height": 900})
        expect(row.locator(".sub").get_by_text("ran for")).to_be_visible()
        expect(header).to_be_hidden()
        heights = page.locator(".workload-rows tbody tr").evaluate_all(
            "all => all.map(row => row.offsetHeight)"
        )
        assert max(heights) < 70, "rows have at most three lines"
        page.set_viewport_size({"width": 1440, "height": 900})
        expect(header).to_be_visible()
        page.set_viewport_size(MEDIUM)
        page.goto("/workloads?state=all&columns=state,runtime")
        expect(header).to_be_visible()
        expect(row.locator(".sub").get_by_text("ran for")).to_be_hidden()
        assert faults == []


def test_dates_and_their_labels_stay_on_one_line_in_a_medium_width_window(opened: Open, scene: Scene) -> None:
    start = (timezone.now() + timedelta(days=1)).isoformat()
    explanation = {"pool": "train", "queue_position": 1, "expected_start": start}
    pending = scene.workloads["policy-sweep"]
    Workload.objects.filter(pk=pending.pk).update(explanation=explanation)
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto("/workloads?columns=state,gpus,status,priority,pool,since,submitted")
        expected = page.get_by_role("row", name=re.compile(f"Select {pending.name}")).get_by_text("starts ")
        expect(expected).to_be_visible()
        assert expected.evaluate("text => new Set([...text.getClientRects()].map(box => box.top)).size") == 1
        assert faults == []


def test_decision_reasons_are_readable_in_a_medium_width_window(opened: Open) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto("/decisions")
        reason = page.locator(".decisions td.reason").first.bounding_box()
        assert reason and reason["width"] >= 9 * 16
        assert page.get_by_text("in train", exact=True).first.is_visible()
        assert not page.get_by_role("columnheader", name="Node pool").is_visible()
        assert faults == []


@pytest.mark.parametrize(("width", "columns"), [(390, 2), (1024, 4), (1440, 8)])
def test_node_devices_fill_whole_rows(opened: Open, width: int, columns: int) -> None:
    with opened("ada", viewport={"width": width, "height": 768}) as (page, faults):
        page.goto("/node-pools/train")
        node = page.get_by_role("article", name="Node train-2")
        tops = node.locator(".slot").evaluate_all("slots => slots.map(slot => slot.offsetTop)")
        assert [tops.count(top) for top in sorted(set(tops))] == [columns] * (8 // columns)
        shared = node.locator(".slot").filter(has_text="grasp-notebook")
        cut = "parts => parts.filter(part => part.scrollWidth > part.clientWidth).length"
        assert shared.locator("a > span:first-child").evaluate_all(cut) == 0
        box, share = shared.bounding_box(), shared.get_by_text("0.5", exact=True).bounding_box()
        assert box and share and share["x"] + share["width"] <= box["x"] + box["width"]
        assert faults == []


def test_devices_are_next_to_the_utilization_in_a_medium_width_window(opened: Open) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto("/")
        devices, chart = (
            page.get_by_role("region", name=re.compile(name)).bounding_box()
            for name in ("Devices", "GPU utilization")
        )
        assert devices and chart and devices["y"] == chart["y"] and devices["x"] < chart["x"]
        assert faults == []


@pytest.mark.parametrize("viewport", [MEDIUM, WIDE], ids=["medium", "wide"])
def test_evictions_on_the_admin_site_fit_without_horizontal_scrolling(
    opened: Open, viewport: ViewportSize
) -> None:
    hidden = """list => {
      const parents = [];
      for (let each = list.parentElement; each; each = each.parentElement) parents.push(each);
      return Math.max(...parents.map(each => each.scrollWidth - each.clientWidth));
    }"""
    with opened("ada", viewport=viewport) as (page, faults):
        page.goto("/admin/scheduler/eviction/")
        rows = page.locator("#result_list")
        count_visible = "all => all.filter(one => one.checkVisibility()).length"
        heads = rows.locator("thead th").evaluate_all(count_visible)
        cells = rows.locator("tbody tr").first.locator("th, td")
        assert heads == cells.evaluate_all(count_visible)
        expect(rows.get_by_text("Reclaimed").first).to_be_visible()
        assert rows.evaluate(hidden) <= 16  # the scroll area is wider than its contents by a scrollbar
        assert faults == []


def test_prediction_stays_next_to_the_submission_form_in_a_medium_width_window(opened: Open) -> None:
    with opened("ada", viewport=MEDIUM) as (page, faults):
        page.goto("/submit")
        form, prediction = page.locator("#fields").bounding_box(), page.locator("#document").bounding_box()
        assert form and prediction
        assert prediction["x"] >= form["x"] + form["width"]
        assert prediction["y"] < 768
        assert faults == []


@pytest.mark.parametrize("viewport", [MEDIUM, WIDE], ids=["medium", "wide"])
def test_predicted_evictions_fit_next_to_the_submission_form(opened: Open, viewport: ViewportSize) -> None:
    document = (
        "name: urgent\nproject: vision\npools: [train]\ncommand: sleep 1\npriority: 90\n"
        "roles:\n  - {name: worker, replicas: 2, gpu: 1}\n"
    )
    with opened("dave", viewport=viewport) as (page, faults):
        page.goto("/submit")
        page.locator("#document").fill(document)
        expect(page.get_by_label("Name", exact=True)).to_have_value("urgent")
        evictions = page.get_by_role("list", name="Predicted evictions")
        expect(evictions).to_contain_text("vision/segment-eval would be preempted")
        area = page.locator("#answer")
        expect(area).to_contain_text("Evicts vision/segment-eval (4 GPUs")
        expect(area).to_contain_text("of work lost")
        assert area.evaluate("area => area.scrollWidth <= area.clientWidth")
        assert accessibility_faults(page) == []
        assert faults == []
