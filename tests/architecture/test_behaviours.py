"""Tests for the behaviour markers and the behaviour table."""

from types import SimpleNamespace
from typing import cast

import pytest

from tests.harness.behaviours import chapters, reject_unknown_behaviours, table

BEHAVIOUR_COUNTS = {"elastic-jobs": 35, "plugins": 48, "pools": 87, "scheduler": 82, "services": 101}


def item_showing(*ids: str) -> pytest.Item:
    mark = SimpleNamespace(args=ids)
    item = SimpleNamespace(nodeid="tests/test_it.py::test_it", iter_markers=lambda name: [mark])
    return cast("pytest.Item", item)


def test_every_behaviour_is_listed_once() -> None:
    assert {chapter: len(set(ids)) for chapter, ids in chapters().items()} == BEHAVIOUR_COUNTS
    assert {chapter: len(ids) for chapter, ids in chapters().items()} == BEHAVIOUR_COUNTS


def test_unknown_behaviour_id_stops_the_test_run() -> None:
    reject_unknown_behaviours([item_showing("RAI-01", "PAD-35")])
    with pytest.raises(pytest.UsageError, match="RAI-83"):
        reject_unknown_behaviours([item_showing("RAI-01"), item_showing("RAI-83")])


def test_behaviour_table_lists_tests_and_untested_behaviours() -> None:
    text = table({"PAD-02": {"tests/b.py::test_b", "tests/a.py::test_a"}})
    assert "elastic-jobs: 1 of 35 shown" in text
    assert "  PAD-02  tests/a.py::test_a\n  PAD-02  tests/b.py::test_b\n  not yet: PAD-01 PAD-03" in text
    assert "plugins: 0 of 48 shown" in text
