"""Collect garbage less often in processes that hold whole clusters in memory."""

import gc

NEW_OBJECTS, YOUNG, MIDDLE = 50_000, 10, 10


def relax_garbage_collection() -> None:
    """Raise the garbage collector's thresholds in a process that makes scheduling decisions.

    By default, Python searches for unreachable cycles after every 700 new objects. A scheduling decision
    creates hundreds of thousands of objects, and these searches took up to a third of its time. The price is
    that tens of MiB of garbage are freed later.
    """
    gc.set_threshold(NEW_OBJECTS, YOUNG, MIDDLE)
