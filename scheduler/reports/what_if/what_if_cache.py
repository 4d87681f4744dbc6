"""Cache what earlier dry runs of this process learned.

It spares effort only: rows that are as they were are not read again, and decisions go on from how things
stood.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from scheduler.loop.decide import LayoutCache
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import ObservationCache

PATIENCE = 1.0  # seconds that a question waits for the one before it

SPECS = SpecCache()  # of this process: a second question parses nothing again


@dataclass(slots=True)
class Learnt:
    """Of one question at a time."""

    known: ObservationCache = field(default_factory=ObservationCache)
    carried: LayoutCache = field(default_factory=LayoutCache)


_kept = Learnt()
_free = Lock()


@contextmanager
def asked_before() -> Iterator[Learnt]:
    """What is kept, to go on from; who would have to wait for long begins with nothing known."""
    if not _free.acquire(timeout=PATIENCE):
        yield Learnt()
        return
    try:
        yield _kept
    finally:
        _free.release()
