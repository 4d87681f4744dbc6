"""Browser tests for times and errors of log lines."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from pools.runtimes.shim.logs.logtimes import append_entries
from projects.models import Pod
from tests.browser.conftest import Open
from tests.browser.driver.axe import accessibility_faults
from tests.browser.driver.held_requests import hold_requests
from tests.browser.workloads.test_logs import NUMBER_OF_HIT, open_view, pods, write

pytestmark = pytest.mark.heavy

MINUTE = 60_000
START = 1_767_225_600_000  # 2026-01-01, 00:00:00 UTC

__all__ = ["pods"]


def write_timed(home: Path, pod: Pod, *parts: tuple[str, int]) -> None:
    """Write parts of a log, each at its time in minutes after START."""
    log = home / "run" / "pods" / str(pod.pk) / "log"
    for text, minutes in parts:
        write(home, pod, text)
        append_entries(str(log), 0, [(log.stat().st_size, START + minutes * MINUTE)])


def times(page: Page) -> list[str]:
    shown = page.locator("#log .l").evaluate_all("each => each.map(line => line.dataset.time ?? '')")
    return [time[-8:] for time in shown]


def test_log_timestamps_are_optional_and_the_choice_is_remembered(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    write_timed(home, pods[0], ("one\ntwo", 1), (" continues\nthree\n", 2))
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log .l")).to_have_count(3)
        assert times(page) == ["", "", ""]
        open_view(page)
        page.get_by_label("Timestamps").check()
        expect(page.locator("#log .l[data-time]")).to_have_count(3)
        assert [time[-5:] for time in times(page)] == ["01:00", "01:00", "02:00"]
        write_timed(home, pods[0], ("four\n", 3))
        expect(page.locator("#log .l[data-time]")).to_have_count(4)
        assert times(page)[-1].endswith("03:00")
        page.reload()
        expect(page.get_by_label("Timestamps")).to_be_checked()
        expect(page.locator("#log .l[data-time]")).to_have_count(4)
        assert accessibility_faults(page) == []
        open_view(page)
        page.get_by_label("Search the log").fill("three")
        page.get_by_label("Search the log").press("Enter")
        expect(page.locator(".log-hits [data-time]")).to_have_attribute("data-time", re.compile("02:00$"))
        open_view(page)
        page.get_by_label("Timestamps").uncheck()
        expect(page.locator("#log.timed")).to_have_count(0)
        assert faults == []


def test_lines_without_a_known_time_show_no_timestamp(opened: Open, pods: list[Pod], home: Path) -> None:
    write(home, pods[0], "from an earlier version\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        open_view(page)
        page.get_by_label("Timestamps").check()
        expect(page.locator("#log .l[data-time='-']")).to_have_count(1)
        assert faults == []


def test_each_line_appears_once_if_timestamps_are_enabled_while_the_log_loads(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    write(home, pods[0], "from an earlier version\n")
    with opened("dave") as (page, faults):
        held = hold_requests(page, re.compile("tail=500"))
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        open_view(page)
        page.get_by_label("Timestamps").check()
        while not held:
            page.wait_for_timeout(20)
        page.wait_for_timeout(500)  # a second reading of the log would begin and end now
        held[0].continue_()
        expect(page.locator("#log .l[data-time='-']")).to_have_count(1)
        assert faults == []


def test_errors_are_counted_and_highlighted_and_can_be_stepped_through(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    filler = "".join(f"step {number} {'x' * 60}\n" for number in range(1, 3001))
    lines = (
        "Traceback (most recent call last):\n  File a.py\n\x1b[31mRuntimeError\x1b[0m: CUDA out of memory\n"
    )
    write(home, pods[0], f"ERROR first\n{filler}{lines}0 errors, error_rate 0.1\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        button = page.locator("#log-errors")
        expect(button).to_have_text("Show 2 errors")
        expect(page.locator("#log .l.error")).to_have_text([re.compile("Traceback"), re.compile("CUDA")])
        expect(page.locator("#log .l.trace")).to_have_text("  File a.py\n")
        button.click()
        expect(page.locator("#log-count")).to_contain_text("2 errors in")
        expect(page.locator("#log-place")).to_have_text("1 of 2 errors")
        expect(page.locator("#log .hit")).to_have_text("ERROR first")
        page.get_by_role("button", name="Next error").click()
        expect(page.locator("#log .hit")).to_contain_text("CUDA out of memory")
        expect(page.locator("#log mark")).to_have_count(0)
        page.get_by_role("button", name="Previous error").click()
        expect(page.locator("#log .hit")).to_have_text("ERROR first")
        assert accessibility_faults(page) == []
        assert faults == []


def test_error_written_to_a_followed_log_is_counted(opened: Open, pods: list[Pod], home: Path) -> None:
    write(home, pods[0], "step 1\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        button = page.locator("#log-errors")
        expect(button).to_have_text("Show 0 errors")
        expect(button).to_be_disabled()
        write(home, pods[0], "worker 3: Killed\n")
        expect(button).to_have_text("Show 1 error")
        expect(button).to_be_enabled()
        expect(page.locator("#log .l.error")).to_have_text("worker 3: Killed\n")
        write(home, pods[0], "Traceback (most recent call last):\n  File a.py\nValueError: no data\n")
        expect(page.locator("#log .l.error")).to_have_count(3)
        expect(button).to_have_text("Show 2 errors")
        assert faults == []


def test_traceback_lines_that_arrive_later_are_marked(opened: Open, pods: list[Pod], home: Path) -> None:
    write(home, pods[0], "Traceback (most recent call last):\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log .l")).to_have_count(1)
        write(home, pods[0], "  File a.py\n    run()\n")
        expect(page.locator("#log .l.trace")).to_have_text(["  File a.py\n", "    run()\n"])
        write(home, pods[0], "  File b.py\n")
        expect(page.locator("#log .l.trace")).to_have_count(3)
        write(home, pods[0], "ValueError: no data\n  step 2\n")
        expect(page.locator("#log .l")).to_have_count(6)
        expect(page.locator("#log .l.trace")).to_have_count(3)
        assert faults == []


def test_header_of_a_running_workload_links_to_the_errors_in_its_log(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    write(home, pods[0], "step 1\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}")
        expect(page.locator("#log")).to_contain_text("step 1")
        link = page.locator("#log-error-link a")
        expect(link).to_be_hidden()
        write(home, pods[0], "Traceback (most recent call last):\n  File a.py\nValueError: no data\n")
        expect(link).to_have_text("1 error at line 4")
        expect(link).to_have_class("bad")
        write(home, pods[0], "".join(f"step {number}\n" for number in range(2, 9)) + "Killed\n")
        expect(link).to_have_text("2 errors, latest at line 12")
        link.click()
        expect(page.locator("#log .hit")).to_have_text("Killed\n")
        assert page.evaluate(NUMBER_OF_HIT) == 12
        for tab in ("Metrics", "Terminal"):
            page.locator("#tabs").get_by_role("link", name=tab).click()
            expect(link).to_have_text("2 errors, latest at line 12")
        assert accessibility_faults(page) == []
        assert faults == []


def test_header_omits_the_error_count_if_the_log_was_read_only_partly(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    lines = [f"ERROR {number} {'x' * 60}\n" for number in range(6000)]
    write(home, pods[0], "".join(lines))
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}")
        expect(page.locator("#log-error-link a")).to_have_text("Latest error")
        page.locator("#log-error-link a").click()
        expect(page.locator("#log .hit")).to_contain_text("ERROR 5999")
        assert page.evaluate(NUMBER_OF_HIT) == 6000
        assert faults == []


@pytest.mark.parametrize("tab", ["", "/logs"])
def test_empty_log_takes_up_one_line(opened: Open, pods: list[Pod], home: Path, tab: str) -> None:
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}{tab}")
        expect(page.locator("#log")).to_contain_text("No output yet")
        heights = "card => [card.offsetHeight, card.querySelector('#log').offsetHeight]"
        card, log = page.locator("#log-card").evaluate(heights)
        assert log < 60 and card - log < 130, (card, log)
        write(home, pods[0], "step 1\n")
        expect(page.locator("#log .l")).to_have_text("step 1\n")
        assert page.locator("#log").evaluate("log => log.offsetHeight") > 200
        assert faults == []


def test_search_without_matches_removes_earlier_highlights(opened: Open, pods: list[Pod], home: Path) -> None:
    write(home, pods[0], "step 1\nstep 2\nERROR in step 2\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        search = page.get_by_label("Search the log")
        search.fill("step 2")
        search.press("Enter")
        expect(page.locator("#log mark")).to_have_count(2)
        search.fill("missing")
        search.press("Enter")
        expect(page.locator("#log-count")).to_contain_text("No matches")
        expect(page.locator("#log :is(mark, .hit), #log-matches mark")).to_have_count(0)
        count, scope = (
            page.locator("#log-count").bounding_box(),
            page.locator("[data-log-scope]").bounding_box(),
        )
        assert count and scope and count["x"] + count["width"] <= scope["x"], "the offer follows the result"
        page.set_viewport_size({"width": 1024, "height": 768})
        tops = "all => all.map(each => each.getBoundingClientRect().top)"
        tools = page.locator("#log-pods, .log-search, #log-view").evaluate_all(tops)
        assert max(tools) - min(tools) < 20, "the tools stay in one row"
        expect(page.locator("#log .l.error")).to_have_text("ERROR in step 2\n")
        assert faults == []


def test_search_of_all_pods_shows_the_log_of_the_pod_with_the_match(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    for pod, text in ((pods[0], "step 1\nloss is nan\n"), (pods[3], "step 1\nstep 2\nloss is nan\n")):
        write(home, pod, text)
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        page.get_by_label("Search the log").fill("nan")
        page.keyboard.press("Enter")
        expect(page.locator("#log-place")).to_have_text("1 of 1 matching line")
        expect(page.locator(".log-all")).to_be_hidden()
        page.get_by_label("Search all pods").check()
        expect(page.locator("#log-place")).to_have_text("1 of 2 matching lines · worker-0")
        expect(page.locator(".log-all > summary")).to_be_visible()
        page.get_by_role("button", name="Next match").click()
        expect(page.locator("#log-place")).to_have_text("2 of 2 matching lines · worker-3")
        expect(page.get_by_label("Pod and run")).to_have_value(str(pods[3].pk))
        expect(page.locator("#log .hit")).to_have_text("loss is nan\n")
        assert page.evaluate(NUMBER_OF_HIT) == 3
        assert accessibility_faults(page) == []
        page.get_by_label("Search all pods").uncheck()
        expect(page.locator("#log-place")).to_have_text("1 of 1 matching line")
        page.get_by_label("Pod and run").select_option("worker-0")
        page.get_by_label("Search the log").fill("step 2")
        page.keyboard.press("Enter")
        expect(page.locator("#log-count")).to_contain_text("No matches in worker-0")
        page.get_by_role("button", name="Search all pods").click()
        expect(page.locator("#log-place")).to_have_text("1 of 1 matching line · worker-3")
        assert faults == []


@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_logs_of_all_pods_can_be_searched_at_every_window_size(
    opened: Open, pods: list[Pod], home: Path, width: int
) -> None:
    write(home, pods[0], "loss is nan\n" * 2)
    write(home, pods[3], "loss is nan\n" * 40)
    with opened("dave", viewport={"width": width, "height": 844}) as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        page.get_by_label("Search the log").fill("nan")
        page.keyboard.press("Enter")
        expect(page.locator("#log-place")).to_have_text("1 of 2 matching lines")
        page.get_by_label("Search all pods").check()
        expect(page.locator("#log-place")).to_have_text("1 of 42 matching lines · worker-0")
        field, place = page.locator("#log-search").bounding_box(), page.locator("#log-place").bounding_box()
        assert field and field["width"] > 250 and place and place["x"] + place["width"] < width
        page.locator(".log-all > summary").click()
        page.get_by_role("button", name="Show more matches").click()
        expect(page.locator(".log-hits li")).to_have_count(37)
        page.locator(".log-hits li").last.locator("button").click()
        expect(page.locator("#log-place")).to_have_text("37 of 42 matching lines · worker-3")
        assert faults == []


@pytest.mark.parametrize("width", [360, 390])
def test_log_toolbar_fits_on_phones(opened: Open, pods: list[Pod], home: Path, width: int) -> None:
    write_timed(home, pods[0], ("one\nERROR two\n", 1))
    with opened("dave") as (page, faults):
        page.set_viewport_size({"width": width, "height": 780})
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log-errors")).to_have_text("Show 1 error")
        page.get_by_label("Search the log").fill("ERROR")
        page.keyboard.press("Enter")
        expect(page.locator("#log-place")).to_have_text("1 of 1 matching line")
        height = page.locator("#log-card .log-head").evaluate("row => row.clientHeight")
        assert height < 165, f"the tools take {height} pixels"
        for tool, least in (("#log-pod", 70), ("#log-text", 70)):
            assert page.locator(tool).evaluate("tool => tool.offsetWidth") > least
        open_view(page)
        page.get_by_label("Timestamps").check()
        before = page.locator("#log .l").first.evaluate("line => getComputedStyle(line, '::before').content")
        assert "counter(line)" in before and page.evaluate("document.documentElement.scrollWidth") <= width
        expect(page.get_by_label("Wrap lines")).not_to_be_checked()
        expect(page.locator("#log pre")).to_have_css("white-space", "pre")
        page.get_by_label("Wrap lines").check()
        expect(page.locator("#log pre")).to_have_css("white-space", "pre-wrap")
        assert faults == []


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (1024, 900), (390, 844)])
def test_logs_tab_fills_the_window_and_only_the_log_scrolls(
    opened: Open, pods: list[Pod], home: Path, width: int, height: int
) -> None:
    write(home, pods[0], "".join(f"line {number}\n" for number in range(200)))
    write(home, pods[3], "".join(f"line {number}\n" for number in range(50)))
    with opened("dave") as (page, faults):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log .l")).to_have_count(200)
        assert page.evaluate("document.documentElement.scrollHeight") == height
        assert page.locator("#tabs a").first.evaluate(
            "tab => tab.parentElement.clientHeight >= tab.offsetHeight"
        )
        log = page.locator("#log").bounding_box()
        assert log and log["height"] >= 300 and height - 40 <= log["y"] + log["height"] < height
        assert page.locator("#log").evaluate(
            "log => log.scrollTop + log.clientHeight >= log.scrollHeight - 2"
        )
        page.get_by_label("Search all pods").check()
        page.get_by_label("Search the log").fill("line")
        page.get_by_label("Search the log").press("Enter")
        page.locator(".log-all > summary").click()
        items = page.locator(".log-hits li")
        expect(items).to_have_count(8)
        listed, log = page.locator(".log-list").bounding_box(), page.locator("#log").bounding_box()
        assert listed and log and listed["height"] < 0.4 * height and log["height"] >= 200
        assert log["y"] + log["height"] < height
        assert page.evaluate("document.documentElement.scrollHeight") == height
        page.get_by_role("button", name="Show more matches").click()
        expect(items).to_have_count(38)
        expect(page.locator("#log-place")).to_have_text("1 of 250 matching lines · worker-0")
        items.nth(23).locator("pre").last.click()
        expect(page.locator("#log-place")).to_have_text("24 of 250 matching lines · worker-3")
        expect(page.locator(".log-hits [aria-current]")).to_have_count(1)
        page.get_by_role("button", name="Previous match").click()
        expect(page.locator("#log-place")).to_have_text("23 of 250 matching lines · worker-0")
        assert faults == []


COUNT_ERRORS = """(lines) => {
  const body = document.createElement("div"), section = body.appendChild(document.createElement("div"));
  for (const text of lines) {
    const line = section.appendChild(document.createElement("span"));
    line.className = "l error";
    line.textContent = text;
  }
  const next = Object.getOwnPropertyDescriptor(Element.prototype, "nextElementSibling");
  let scanned = 0;
  const get = function () { scanned += 1; return next.get.call(this); };
  Object.defineProperty(Element.prototype, "nextElementSibling", { ...next, get });
  const errors = window.berthLog.errorsIn(body);
  Object.defineProperty(Element.prototype, "nextElementSibling", next);
  return [errors, scanned];
}"""


def test_page_scans_a_limited_number_of_lines_for_tracebacks(opened: Open, pods: list[Pod]) -> None:
    lines = [f"{number:05}: Traceback (most recent call last):\n" for number in range(1000)]
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        pair = ["Traceback (most recent call last):\n", "ValueError: no data\n"]
        assert page.evaluate(COUNT_ERRORS, pair)[0] == 1
        errors, scanned = page.evaluate(COUNT_ERRORS, lines)
        assert errors == 1000 and 0 < scanned <= 20_000 + 2 * len(lines)
        assert faults == []


@pytest.mark.parametrize("width", [390, 1440])
def test_match_list_opens_without_moving_its_button(
    opened: Open, pods: list[Pod], home: Path, width: int
) -> None:
    write(home, pods[0], "loss is nan\n" * 3)
    with opened("dave", viewport={"width": width, "height": 844}) as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        icon = page.locator(".log-search .button svg").bounding_box()
        assert icon and 15 <= icon["width"] <= 16, "the icon keeps its size"
        page.get_by_label("Search the log").fill("nan")
        page.keyboard.press("Enter")
        button, listed = page.locator(".log-all > summary"), page.locator(".log-list")
        expect(button).to_be_visible()
        expect(listed).to_be_hidden()
        expect(page.locator("#log-errors")).to_be_disabled()  # its text has its final length
        before = button.bounding_box()
        button.click()
        expect(listed).to_be_visible()
        after = button.bounding_box()
        assert before and after
        x, y = before["x"] + before["width"] / 2, before["y"] + before["height"] / 2
        assert after["x"] < x < after["x"] + after["width"], "the button is still under the pointer"
        assert after["y"] < y < after["y"] + after["height"]
        assert accessibility_faults(page) == faults == []
