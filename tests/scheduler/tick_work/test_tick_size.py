"""Tests for the maximum work of a tick."""

import pytest

from scheduler.loop.tick_size import LARGEST, SMALLEST, TickSize
from tests.scheduler.stage import Stage
from tests.scheduler.tick_work.statements import submit_copies


def test_tick_size_grows_while_short_ticks_leave_a_backlog() -> None:
    size = TickSize()
    sizes = []
    for _ in range(5):
        size.adapt(0.1, has_more=True)
        sizes.append(size.starts)
    assert sizes == [300, LARGEST, LARGEST, LARGEST, LARGEST]


def test_tick_size_stays_the_same_without_a_backlog() -> None:
    size = TickSize(300)
    size.adapt(0.01, has_more=False)
    assert size.starts == 300


@pytest.mark.parametrize(("seconds", "starts"), [(0.25, 400), (0.4, 300), (0.5, 240), (30.0, SMALLEST)])
def test_tick_size_shrinks_in_proportion_to_a_long_tick(seconds: float, starts: int) -> None:
    size = TickSize(LARGEST)
    size.adapt(seconds, has_more=True)
    assert size.starts == starts


def test_each_tick_adapts_the_size_of_the_next_tick(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, bool]] = []
    monkeypatch.setattr(
        TickSize, "adapt", lambda self, seconds, *, has_more: seen.append((seconds, has_more))
    )
    stage.node(2)
    submit_copies(stage, 3)
    stage.loop.context.size.starts = 2
    stage.loop.tick()
    stage.loop.tick()
    assert [has_more for _, has_more in seen] == [True, False]
    assert all(seconds > 0 for seconds, _ in seen)
