"""Collect garbage less often in processes that keep the state of whole clusters in memory."""

import gc
from dataclasses import dataclass
from datetime import datetime, timedelta

NEW_OBJECTS, YOUNG, MIDDLE = 50_000, 10, 10
# A scheduler tick allocates up to 100,000 objects, which reference counting frees.
# With a lower threshold, Python would scan these objects in every tick.
NEW_OBJECTS_IF_DEFERRED, YOUNG_IF_DEFERRED, MIDDLE_IF_DEFERRED = 250_000, 20, 1
# With fewer new objects, `collect_recent_garbage` does nothing.
RECENT_OBJECTS = 50_000
# A full collection visits all objects of all live workloads, and finds almost no garbage.
COLLECT_EVERY = timedelta(minutes=10)
_state = {"deferred": False}


def relax_garbage_collection() -> None:
    """Raise the garbage collector's thresholds in a process that makes scheduling decisions.

    With Python's default thresholds, collections took up to a third of a decision's time.
    """
    gc.set_threshold(NEW_OBJECTS, YOUNG, MIDDLE)


def defer_full_collections() -> None:
    """Leave full collections to `collect_deferred_garbage`.

    Otherwise, Python could start a full collection at any moment, and that takes up to half a second. If
    `collect_deferred_garbage` is not called, Python collects after five million new objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS_IF_DEFERRED, YOUNG_IF_DEFERRED, MIDDLE_IF_DEFERRED)
    _state["deferred"] = True


def collect_recent_garbage() -> bool:
    """If collections are deferred and many objects are new, collect those. Return whether a collection ran.

    Call this between steps, so that Python does not collect in the middle of a step.
    """
    if not _state["deferred"] or gc.get_count()[0] < RECENT_OBJECTS:
        return False
    gc.collect(0)
    return True


def collect_deferred_garbage() -> bool:
    """Run a full collection if collections are deferred and garbage may exist. Return whether it ran."""
    _, young, middle = gc.get_count()
    if not _state["deferred"] or not (young or middle):
        return False
    gc.collect()
    return True


@dataclass(slots=True)
class FullCollections:
    """Schedule of full garbage collections: one every ten minutes, and more while the process is idle."""

    _last: datetime | None = None

    def run_if_due(self, now: datetime, *, is_idle: bool) -> bool:
        """Run a full collection if it is due or the process is idle. Return whether it ran."""
        if self._last is None:
            self._last = now
        if not is_idle and now - self._last < COLLECT_EVERY:
            return False
        self._last = now
        return collect_deferred_garbage()
