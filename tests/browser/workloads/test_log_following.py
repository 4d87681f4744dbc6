"""Browser tests for following a log, which stops when the reader scrolls up and resumes at the end."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from projects.models import Pod
from tests.browser.conftest import Open
from tests.browser.workloads.test_logs import pods, write

pytestmark = pytest.mark.heavy

__all__ = ["pods"]

LATEST = "Jump to latest output"
IS_AT_END = """() => {
    const log = document.getElementById("log");
    return log.scrollTop > 0 && log.scrollHeight - log.clientHeight - log.scrollTop < 2;
}"""


def open_log(page: Page, pod: Pod, path: str = "/logs") -> None:
    page.goto(f"/workloads/{pod.workload_id}{path}")
    expect(page.locator("#log pre")).to_contain_text("step 299")
    page.wait_for_function(IS_AT_END)


def write_steps(home: Path, pod: Pod) -> None:
    write(home, pod, "".join(f"step {number}\n" for number in range(300)))


def scroll(page: Page, distance: int) -> None:
    page.locator("#log").hover()
    page.mouse.wheel(0, distance)


@pytest.mark.parametrize("path", ["/logs", ""])
def test_scrolling_to_the_end_of_a_log_resumes_following(
    opened: Open, pods: list[Pod], home: Path, path: str
) -> None:
    write_steps(home, pods[0])
    with opened("dave") as (page, faults):
        open_log(page, pods[0], path)
        follow, log = page.locator("#log-follow"), page.locator("#log pre")
        scroll(page, -600)
        expect(follow).not_to_be_checked()
        write(home, pods[0], "written meanwhile\n")
        expect(page.get_by_role("button", name=LATEST)).to_be_visible()
        assert "written meanwhile" not in log.inner_text()
        scroll(page, 5000)
        expect(follow).to_be_checked()
        expect(log).to_contain_text("written meanwhile")
        page.wait_for_function(IS_AT_END)
        expect(page.get_by_role("button", name=LATEST)).to_be_hidden()
        assert log.inner_text().count("written meanwhile") == 1
        write(home, pods[0], "written later\n")
        expect(log).to_contain_text("written later")
        page.wait_for_function(IS_AT_END)
        assert faults == []


def test_page_up_stops_and_end_resumes_log_following(opened: Open, pods: list[Pod], home: Path) -> None:
    write_steps(home, pods[0])
    with opened("dave") as (page, faults):
        open_log(page, pods[0])
        page.locator("#log").focus()
        page.keyboard.press("PageUp")
        expect(page.get_by_label("Follow")).not_to_be_checked()
        page.keyboard.press("End")
        expect(page.get_by_label("Follow")).to_be_checked()
        assert faults == []


def test_button_jumps_from_a_match_to_the_latest_output(opened: Open, pods: list[Pod], home: Path) -> None:
    write(home, pods[0], "".join(f"step {number} {'x' * 200}\n" for number in range(2000)))
    with opened("dave", viewport={"width": 390, "height": 844}, has_touch=True) as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log pre")).to_contain_text("step 1999 ")
        page.get_by_label("Search the log").fill("step 70 ")
        page.keyboard.press("Enter")
        expect(page.locator("#log .hit")).to_contain_text("step 70 ")
        button = page.get_by_role("button", name=LATEST)
        scroll(page, 20_000)
        expect(page.get_by_label("Follow")).not_to_be_checked()
        button.click()
        expect(page.get_by_label("Follow")).to_be_checked()
        expect(page.locator("#log pre")).to_contain_text("step 1999 ")
        page.wait_for_function(IS_AT_END)
        expect(button).to_be_hidden()
        assert page.evaluate("document.activeElement.id") == "log"
        assert faults == []


def test_selecting_log_text_stops_following(opened: Open, pods: list[Pod], home: Path) -> None:
    write_steps(home, pods[0])
    with opened("dave") as (page, faults):
        open_log(page, pods[0])
        page.locator("#log .l").last.dblclick(position={"x": 10, "y": 5})
        expect(page.get_by_label("Follow")).not_to_be_checked()
        write(home, pods[0], "written meanwhile\n")
        page.wait_for_timeout(500)
        assert page.evaluate("getSelection().toString().trim()") == "step"
        assert "written meanwhile" not in page.locator("#log pre").inner_text()
        assert faults == []


def test_log_following_stays_off_at_the_end_if_the_user_disabled_it(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    write_steps(home, pods[0])
    with opened("dave") as (page, faults):
        open_log(page, pods[0])
        page.get_by_label("Follow").uncheck()
        scroll(page, -600)
        expect(page.get_by_role("button", name=LATEST)).to_be_visible()
        scroll(page, 5000)
        page.wait_for_function(IS_AT_END)
        expect(page.get_by_role("button", name=LATEST)).to_be_hidden()
        expect(page.get_by_label("Follow")).not_to_be_checked()
        assert faults == []
