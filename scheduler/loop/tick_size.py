"""Limit the work per tick, so that a tick takes less than half a second."""

from dataclasses import dataclass

SMALLEST, LARGEST = 200, 400
# Each pod has two changes, its start and its end. Allow twice as many, so that ends are never postponed.
CHANGES_PER_START = 4
SHORT_SECONDS, LONG_SECONDS = 0.2, 0.3
GROWTH = 1.5


@dataclass(slots=True)
class TickSize:
    """Maximum work of the next tick: `starts` limits both the bundles to commit and the pods to start."""

    starts: int = SMALLEST
    is_saturated: bool = False  # whether the last tick left work for the next one

    @property
    def max_changes(self) -> int:
        """Maximum number of reported pod changes to record.

        All changes of one workload belong to the same tick.
        """
        return self.starts * CHANGES_PER_START

    def adapt(self, seconds: float, *, has_more: bool) -> None:
        """Adapt the limits to the duration of the last tick, and to whether that tick left work for the next
        one.
        """
        self.is_saturated = has_more
        if seconds > LONG_SECONDS:
            self.starts = max(SMALLEST, int(self.starts * LONG_SECONDS / seconds))
        elif has_more and seconds < SHORT_SECONDS:
            self.starts = min(LARGEST, int(self.starts * GROWTH))
