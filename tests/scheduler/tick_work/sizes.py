"""Ticks of a fixed size."""

import pytest

from scheduler.loop import tick_size
from tests.scheduler.stage import Stage


def fix_tick_size(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    starts: int,
    changes_per_start: int = tick_size.CHANGES_PER_START,
) -> None:
    """Limit each tick to this number of starts, no matter how long it takes."""
    monkeypatch.setattr(tick_size.TickSize, "adapt", lambda *arguments, **options: None)
    monkeypatch.setattr(tick_size, "CHANGES_PER_START", changes_per_start)
    stage.loop.context.size.starts = starts
