"""Collect garbage less often in processes that hold whole clusters in memory."""

import gc

NEW_OBJECTS, YOUNG, MIDDLE = 50_000, 10, 10


def collect_rarely() -> None:
    """Raise the thresholds of the garbage collector in processes that make scheduling decisions.

    By default Python searches for unreachable cycles after every 700 new objects. A decision creates hundreds
    of thousands beside those of a whole cluster, and up to a third of its time was spent in these searches.
    The price is some tens of MiB of garbage that is freed later.
    """
    gc.set_threshold(NEW_OBJECTS, YOUNG, MIDDLE)
