"""Tests for the labels of time axes."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from berth.server.web.charts.time_axis import (
    MAX_LABELS,
    STEPS,
    column_labels,
    time_labels,
    time_labels_with_begin,
)

NOON = datetime(2026, 11, 26, 12, 7, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def texts(begin: datetime, end: datetime, zone: ZoneInfo = BERLIN) -> list[str]:
    return [label.text for label in time_labels(begin, end, zone)]


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (timedelta(hours=1), ["12:10", "12:20", "12:30", "12:40", "12:50", "13:00"]),
        (timedelta(hours=24), ["16:00", "20:00", "26 Nov", "04:00", "08:00", "12:00"]),
        (timedelta(days=7), ["21 Nov", "23 Nov", "25 Nov"]),
        (timedelta(0), []),
    ],
)
def test_axis_labels_are_round_local_times(span: timedelta, expected: list[str]) -> None:
    assert texts(NOON - span, NOON) == expected


@pytest.mark.parametrize("seconds", [90, *STEPS, 45 * 86400])
def test_axis_labels_are_few_and_in_order(seconds: int) -> None:
    labels = time_labels(NOON - timedelta(seconds=seconds), NOON, UTC)
    positions = [label.position for label in labels]
    assert len(labels) <= MAX_LABELS + 1
    assert positions == sorted(positions)
    assert all(4 <= position <= 96 for position in positions)


def test_axis_labels_follow_local_time_when_daylight_saving_time_ends() -> None:
    begin = datetime(2026, 10, 24, 22, 0, tzinfo=UTC)  # midnight in Berlin, 25 hours before the next midnight
    labels = time_labels(begin, begin + timedelta(hours=25), BERLIN)
    assert [(label.position, label.text) for label in labels] == [
        (28.0, "06:00"), (52.0, "12:00"), (76.0, "18:00"),
    ]  # fmt: skip


def test_column_labels_are_below_their_columns() -> None:
    week = [datetime(2026, 11, day, tzinfo=UTC) for day in range(20, 27)]
    labels = column_labels(week, UTC)
    assert [label.text for label in labels] == [f"{day} Nov" for day in range(20, 27)]
    assert [label.position for label in labels] == [round(100 * (n + 0.5) / 7, 2) for n in range(7)]
    month = [datetime(2026, 10, 1, tzinfo=UTC) + timedelta(days=n) for n in range(30)]
    assert [label.text for label in column_labels(month, UTC)][:3] == ["1 Oct", "5 Oct", "9 Oct"]


def test_axis_omits_ticks_that_would_overlap_its_start_label() -> None:
    labels = time_labels_with_begin(NOON, NOON + timedelta(hours=1), BERLIN)
    assert [(label.text, label.is_first) for label in labels] == [
        ("13:07", True), ("13:20", False), ("13:30", False), ("13:40", False), ("13:50", False),
        ("14:00", False),
    ]  # fmt: skip
    assert [label.position for label in labels][:3] == [0, 21.67, 38.33]
    days = time_labels_with_begin(NOON, NOON + timedelta(days=5), BERLIN)
    assert [label.text for label in days] == ["26 Nov 13:07", "28 Nov", "29 Nov", "30 Nov", "1 Dec"]
    assert [label.is_near for label in days] == [False, True, False, False, False]
    *_, last = time_labels_with_begin(NOON, NOON + timedelta(minutes=56), BERLIN)
    assert (last.text, last.is_near) == ("14:00", True), "narrow windows would cut the label"
