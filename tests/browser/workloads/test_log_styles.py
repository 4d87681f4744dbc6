"""Browser tests for the text styles of terminals in logs."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from projects.models import Pod
from tests.browser.conftest import Open
from tests.browser.driver.axe import accessibility_faults
from tests.browser.workloads.test_logs import pods, write

__all__ = ["pods"]

STYLES = {
    "4": "ansi-underline", "3": "ansi-italic", "2": "ansi-dim", "9": "ansi-struck", "7": "ansi-inverse",
    "1;3": "ansi-bold ansi-italic", "41": "ansi-on-1", "97;104": "ansi-on-12 ansi-15",
    "38;5;9": "ansi-9", "38;5;208": "ansi-3", "38;5;244": "ansi-0", "38;5;18": "ansi-4",
    "38;2;255;0;0": "ansi-1", "38;2;255;255;0": "ansi-11", "48;5;22": "ansi-on-2",
    "48;2;0;0;255;31": "ansi-on-4 ansi-1", "7;30;40": "ansi-inverse ansi-on-0 ansi-0",
    "7;90;107": "ansi-inverse ansi-on-15 ansi-8", "7;34": "ansi-inverse ansi-4",
}  # fmt: skip


@pytest.mark.heavy
def test_terminal_styles_are_shown_in_readable_colors(opened: Open, pods: list[Pod], home: Path) -> None:
    lines = [f"\x1b[{codes}m<{codes}>\x1b[m" for codes in STYLES]
    write(home, pods[0], "\n".join(lines) + "\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log .l")).to_have_count(len(STYLES))
        shown = page.locator("#log .l > span").evaluate_all("all => all.map((each) => each.className)")
        assert dict(zip(STYLES, shown, strict=True)) == STYLES
        assert page.locator("#log").get_by_text("<4>").evaluate(
            "text => getComputedStyle(text).textDecorationLine"
        ) == "underline"  # fmt: skip
        assert accessibility_faults(page) == []
        assert faults == []


@pytest.mark.parametrize(
    ("end", "left"),
    [
        ("22", "ansi-italic ansi-on-1 ansi-2"),
        ("23", "ansi-bold ansi-on-1 ansi-2"),
        ("49", "ansi-bold ansi-italic ansi-2"),
        ("39", "ansi-bold ansi-italic ansi-on-1"),
        ("0", ""),
    ],
)
def test_terminal_styles_can_be_reset_individually(
    end: str, left: str, opened: Open, pods: list[Pod], home: Path
) -> None:
    write(home, pods[0], f"\x1b[1;3;41;32mall\x1b[{end}m left\n")
    with opened("dave") as (page, faults):
        page.goto(f"/workloads/{pods[0].workload_id}/logs")
        expect(page.locator("#log .l")).to_have_text("all left\n")
        shown = page.locator("#log .l > span").evaluate_all("all => all.map((each) => each.className.trim())")
        assert shown == ["ansi-bold ansi-italic ansi-on-1 ansi-2", *([left] if left else [])]
        assert faults == []
