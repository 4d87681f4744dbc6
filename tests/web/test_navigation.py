"""Tests for the navigation."""

import pytest

from berth.server.web.navigation import GROUPS


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/", "Overview"),
        ("/workloads", "Workloads"),
        ("/workloads/3f0c", "Workloads"),
        ("/arrays/3f0c", "Workloads"),
        ("/nodes/train-0", "Node pools"),
        ("/budgets", "Usage and cost"),
    ],
)
def test_navigation_highlights_the_list_that_contains_the_page(path: str, title: str) -> None:
    marked = [entry.title for _, entries in GROUPS for entry in entries if entry.contains(path)]
    assert marked == [title]
