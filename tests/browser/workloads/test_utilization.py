"""Browser tests that expanded utilization sections stay open after a refresh."""

import re

import pytest
from playwright.sync_api import expect

from scheduler.models import PodUtilization
from tests.browser.conftest import Open
from tests.browser.data.scene import Scene
from tests.browser.driver.chromium import open_settled
from tests.support.present import present

pytestmark = pytest.mark.heavy

REFRESH = "htmx.ajax('GET', document.querySelector('#use [hx-trigger]').getAttribute('hx-get'), '#use')"


def test_utilization_refresh_keeps_expanded_sections_and_time_range(opened: Open, scene: Scene) -> None:
    workload = scene.workloads["diffusion-xl"]
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{workload.pk}/resources")
        use = page.locator("#use")
        expect(use).to_contain_text("of 16 cores")
        page.get_by_role("link", name="6 hours").click()
        expect(page.get_by_role("link", name="6 hours")).to_have_attribute("aria-current", "true")
        expect(page).to_have_url(f"/workloads/{workload.pk}/resources?span=6h")
        use.get_by_text("By pod", exact=True).click()
        PodUtilization.objects.filter(pod__workload=workload).update(cpu_milli=125)
        page.evaluate(REFRESH)
        cores = use.locator(".figure").filter(has=page.get_by_text("CPU", exact=True)).locator("dd").first
        expect(cores).to_have_text("1")
        expect(use.locator("#use-pods")).to_have_attribute("open", "")
        expect(page.get_by_role("link", name="6 hours")).to_have_attribute("aria-current", "true")
        page.reload()
        expect(page.get_by_role("link", name="6 hours")).to_have_attribute("aria-current", "true")
        assert faults == []


def test_lowest_utilization_fits_on_one_line_in_medium_windows(opened: Open, scene: Scene) -> None:
    with opened("dave", viewport={"width": 1024, "height": 900}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['diffusion-xl'].pk}")
        lowest = page.locator(".spark-top > .lowest")
        expect(lowest).to_be_visible()
        box = lowest.bounding_box()
        assert box and box["height"] < 20
        assert faults == []


def test_node_page_loads_its_utilization(opened: Open, scene: Scene) -> None:
    with opened("dave") as (page, faults):
        page.goto("/nodes/train-0")
        expect(page.get_by_role("heading", name="Utilization", exact=True)).to_be_visible()
        expect(page.locator(".slot").last).to_contain_text("74% used")
        page.get_by_role("link", name="Day", exact=True).click()
        page.wait_for_url("**/nodes/train-0?span=24h")
        page.reload()
        expect(page.get_by_role("link", name="Day", exact=True)).to_have_attribute("aria-current", "true")
        assert faults == []


def test_idle_gpus_are_marked_in_the_workload_list(opened: Open, scene: Scene) -> None:
    with opened("grace") as (page, _):
        page.goto("/workloads")
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="embedding-refresh"))
        expect(row).to_contain_text("GPUs idle")
        page.get_by_role("link", name="embedding-refresh").click()
        expect(page.get_by_text("GPUs idle.")).to_be_visible()


def test_chart_readout_shows_the_values_under_the_pointer(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.goto("/nodes/train-0")
        chart = page.get_by_role("img", name=re.compile("^CPU: up to"))
        chart.hover()
        readout = page.locator(".readout.on")
        expect(readout).to_have_text(re.compile(r"used \d+(\.\d+)?\s+allocated 16$"))
        page.get_by_role("heading", name="About").hover()
        expect(readout).to_be_hidden()
        assert not faults


def test_usage_readout_has_a_total_and_is_next_to_its_column(opened: Open) -> None:
    with opened("ada") as (page, faults):
        page.goto("/usage?span=7d")
        chart = page.locator(".step-chart svg[data-total]")
        box = present(chart.bounding_box())
        page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)  # in the third of eight columns
        readout = page.locator(".readout.on")
        expect(readout).to_have_text(re.compile(r"total [\d.,]+$"))
        assert present(readout.bounding_box())["x"] >= box["x"] + box["width"] * 3 / 8
        assert faults == []


@pytest.mark.parametrize("width", [390, 1440])
def test_sparkline_readout_replaces_the_axis(opened: Open, scene: Scene, width: int) -> None:
    with opened("dave", viewport={"width": width, "height": 844}, has_touch=width < 500) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['diffusion-xl'].pk}")
        chart = page.get_by_role("img", name=re.compile("^GPU utilization: up to"))
        chart.tap(position={"x": 60, "y": 20}) if width < 500 else chart.hover(position={"x": 60, "y": 20})
        spark = page.locator(".spark", has=chart)
        readout, marker = spark.locator(".readout.on"), spark.locator(".readout-marker")
        expect(readout).to_have_text(re.compile(r"^\d\d:\d\d \d+%, [\d.]+ of 8 GPUs$"))
        box, frame = present(readout.bounding_box()), present(chart.bounding_box())
        assert box["y"] >= frame["y"] + frame["height"] - 1, "the readout covers no numbers"
        assert abs(present(marker.bounding_box())["x"] - frame["x"] - 60) <= 2
        others = page.locator(".strip .spark .readout.on strong")
        assert others.count() == page.locator(".strip .spark").count() > 1
        assert len(set(others.all_text_contents())) == 1, "all charts show the same moment"
        assert not faults


def test_name_of_the_least_used_pod_is_readable_in_medium_windows(opened: Open, scene: Scene) -> None:
    with opened("dave", viewport={"width": 1024, "height": 844}) as (page, faults):
        page.goto(f"/workloads/{scene.workloads['diffusion-xl'].pk}")
        lowest = page.locator(".spark-top > .lowest")
        expect(lowest.get_by_role("link")).to_have_text(re.compile(r"^worker-\d$"))
        assert lowest.evaluate("element => element.scrollWidth <= element.clientWidth")
        assert not faults


def test_daily_usage_columns_are_labelled_by_day(opened: Open) -> None:
    with opened("ada") as (page, faults):
        open_settled(page, "/usage?span=7d")
        days = page.locator(".time-axis text").all_text_contents()
        chart = page.locator("svg[data-columns]")
        chart.hover(position={"x": 5, "y": 20})
        expect(page.locator(".readout.on")).to_have_text(re.compile(rf"^{days[0]}\s+vision [\d.]+\s"))
        box = chart.bounding_box()
        assert box is not None
        chart.hover(position={"x": box["width"] - 5, "y": 20})
        expect(page.locator(".readout.on")).to_have_text(re.compile(rf"^{days[-1]}\s+vision [\d.]+\s"))
        assert faults == []


def test_all_pages_show_the_same_latest_measurements(opened: Open, scene: Scene) -> None:
    with opened("ada") as (page, faults):
        page.goto(f"/workloads/{scene.workloads['diffusion-xl'].pk}/resources")
        use = page.locator("#use")
        percent = float(use.locator(".figure dd").first.inner_text().partition("%")[0])
        use.get_by_text("Data table", exact=True).click()
        latest = use.locator("#use-table tbody tr").first.locator("td").all_inner_texts()
        assert float(latest[3].split()[0]) == pytest.approx(8 * percent / 100, abs=0.01)
        page.goto("/nodes/train-0")
        expect(page.locator(".slot").last).to_contain_text("74% used")
        shares = re.findall(r"(\d+)% used", " ".join(page.locator(".slot").all_inner_texts()))
        assert sum(map(int, shares)) / 8 == pytest.approx(percent, abs=0.5)
        page.goto("/")
        page.locator("#course-table > summary").click()
        hours = page.locator("#course-table tbody tr").all_inner_texts()[:24]
        if "\u2013" in hours[0].split("\t")[2:]:  # an hour that has begun since the example was created
            hours = hours[1:]
        amounts = [[float(text) for text in row.split("\t")[2:]] for row in hours]
        assert all(used <= measured <= allocated <= total for used, measured, allocated, total in amounts)
        assert all(total >= 26 for *_, total in amounts), "all nodes have existed for a day"
        assert not faults
