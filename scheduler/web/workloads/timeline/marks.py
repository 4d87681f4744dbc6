"""Labels above a workload's timeline bar: last checkpoint, edit, last eviction, failure, and now."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from scheduler.web.workloads.timeline.scale import Scale

FAILED = "failed"
ROW_HEIGHT = 16  # pixels
TURN = 61  # marks to the right of this position, in percent, have their label on the left
LEFT_ROOM = 40  # position in percent at which a label fits on the left, even in narrow windows


@dataclass(frozen=True, slots=True)
class PeriodMark:
    """Label of a point in time. `x` is in percent of the bar, `y` in pixels from the top of the labels."""

    text: str
    at: datetime
    x: float
    y: int
    is_left: bool  # True if the label is on the left of its line

    @property
    def is_failure(self) -> bool:
        return self.text == FAILED


def arrange_marks(marks: Iterable[tuple[str, datetime]], scale: Scale) -> tuple[PeriodMark, ...]:
    """Place each label in its own row, so that no line from a label to the bar crosses another label."""
    positions = sorted(((text, at, scale.position(at)) for text, at in marks), key=lambda each: each[2])
    turn = len(positions)
    while turn and positions[turn - 1][2] > (TURN if turn == len(positions) else LEFT_ROOM):
        turn -= 1
    rows = [*positions[:turn], *reversed(positions[turn:])]
    return tuple(
        PeriodMark(text, at, x, row * ROW_HEIGHT, row >= turn) for row, (text, at, x) in enumerate(rows)
    )
