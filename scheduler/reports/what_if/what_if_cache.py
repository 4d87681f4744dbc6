"""Cache of observations and layouts, shared by the dry runs of this process.

The cache only saves time: unchanged rows are not read again, and layouts are updated instead of rebuilt.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from scheduler.loop.decide import LayoutCache
from scheduler.loop.observe.specs import SpecCache
from scheduler.loop.observe.view import ObservationCache

PATIENCE = 1.0  # seconds that a dry run waits for the cache

SPECS = SpecCache()  # parsed documents, for all dry runs of this process


@dataclass(slots=True)
class WhatIfCache:
    """Caches that one dry run at a time may use."""

    observations: ObservationCache = field(default_factory=ObservationCache)
    layouts: LayoutCache = field(default_factory=LayoutCache)


_shared = WhatIfCache()
_free = Lock()


@contextmanager
def shared_cache() -> Iterator[WhatIfCache]:
    """Lend the cache to one caller at a time. A caller that has waited for PATIENCE gets an empty cache."""
    if not _free.acquire(timeout=PATIENCE):
        yield WhatIfCache()
        return
    try:
        yield _shared
    finally:
        _free.release()
