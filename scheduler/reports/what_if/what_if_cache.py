"""Cache of observations and engine layouts that this process's dry runs share.

The cache never affects their results.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from scheduler.loop.decide import LayoutCache
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import ObservationCache

MAX_WAIT_SECONDS = 1.0  # maximum time in seconds that a dry run waits for the shared cache

SPEC_CACHE = (
    SpecCache()
)  # parsed documents, shared by all dry runs, previews and share traces of this process


@dataclass(slots=True)
class WhatIfCache:
    """Caches that one dry run at a time can use."""

    observations: ObservationCache = field(default_factory=ObservationCache)
    layouts: LayoutCache = field(default_factory=LayoutCache)


_shared = WhatIfCache()
_shared_lock = Lock()


@contextmanager
def shared_cache() -> Iterator[WhatIfCache]:
    """Yield the cache to one caller at a time.

    A caller that has waited too long gets an empty cache instead.
    """
    if not _shared_lock.acquire(timeout=MAX_WAIT_SECONDS):
        yield WhatIfCache()
        return
    try:
        yield _shared
    finally:
        _shared_lock.release()
