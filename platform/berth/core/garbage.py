"""Collect garbage less often in processes that hold whole clusters in memory."""

import gc

NEW_OBJECTS, YOUNG, MIDDLE = 50_000, 10, 10


def collect_rarely() -> None:
    """For processes that decide. Python looks for unreachable cycles after every 700 new objects; a decision
    makes hundreds of thousands while a cluster's worth of older ones stands by, and up to a third of the time
    of decisions one after the other went into looking through these. What it costs is some tens of MiB of
    garbage that lie a while longer.
    """
    gc.set_threshold(NEW_OBJECTS, YOUNG, MIDDLE)
