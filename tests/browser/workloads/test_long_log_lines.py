"""Browser tests for long lines of logs, with and without wrapping."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from projects.models import Pod
from tests.browser.conftest import Open
from tests.browser.workloads.test_logs import open_view, pods, write

__all__ = ["pods"]

# Distance in pixels from the top of the log's text to the top of the first character.
TOP_OF_TEXT = """() => {
    const range = document.createRange(), pre = document.querySelector("#log pre");
    range.setStart(pre.querySelector(".l").firstChild, 0);
    range.setEnd(pre.querySelector(".l").firstChild, 1);
    return range.getBoundingClientRect().top - pre.getBoundingClientRect().top;
}"""


@pytest.mark.heavy
def test_word_longer_than_a_line_starts_next_to_its_line_number(
    opened: Open, pods: list[Pod], home: Path
) -> None:
    write(home, pods[0], f"{'x' * 1000}\nend\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log pre")).to_contain_text("end")
        assert page.evaluate(TOP_OF_TEXT) < 10
        assert faults == []


@pytest.mark.heavy
def test_line_numbers_stay_in_view_next_to_unwrapped_lines(opened: Open, pods: list[Pod], home: Path) -> None:
    write(home, pods[0], f"first\n{'long line ' * 500}\nERROR third\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        log = page.locator("#log")
        expect(log).to_contain_text("ERROR third")
        open_view(page)
        page.get_by_label("Wrap lines").uncheck()
        log.evaluate("log => { log.scrollLeft = 700; }")
        box = page.locator("#log .l.error").bounding_box()
        assert box and box["width"] > 3000, "the background is as wide as the longest line"
        frame = log.bounding_box()
        assert frame
        page.mouse.click(frame["x"] + 25, box["y"] + box["height"] / 2)
        expect(page).to_have_url(re.compile("line=3&"))
        assert log.evaluate("log => log.scrollLeft") == 700
        assert faults == []
