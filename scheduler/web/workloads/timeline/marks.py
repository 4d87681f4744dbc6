"""Labels above a workload's timeline bar: last checkpoint, edit, last eviction, failure, and now."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from scheduler.web.workloads.timeline.scale import Scale

FAILED = "failed"
ROW_HEIGHT = 16  # pixels
TURN = 60  # marks to the right of this position, in percent, have their label on the left


@dataclass(frozen=True, slots=True)
class PeriodMark:
    """Label of a point in time. `x` is in percent of the bar, `y` in pixels from the top of the labels."""

    text: str
    at: datetime
    x: float
    y: int

    @property
    def is_failure(self) -> bool:
        return self.text == FAILED

    @property
    def is_left(self) -> bool:
        """Return whether the label is at the left side of its line."""
        return self.x > TURN


def arrange_marks(marks: Iterable[tuple[str, datetime]], scale: Scale) -> tuple[PeriodMark, ...]:
    """Return the labels, one per row, so that the lines from the labels down to the bar cross no label.

    Labels to the right of their lines come first, from left to right, then the others from right to left.
    """
    positions = [(text, at, scale.position(at)) for text, at in marks]
    rightward = sorted((each for each in positions if each[2] <= TURN), key=lambda each: each[2])
    leftward = sorted((each for each in positions if each[2] > TURN), key=lambda each: -each[2])
    return tuple(
        PeriodMark(text, at, x, row * ROW_HEIGHT) for row, (text, at, x) in enumerate([*rightward, *leftward])
    )
