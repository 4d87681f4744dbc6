"""Enclosure that a shim has built before it knows its pod."""

from __future__ import annotations

from pools.runtimes.shim.enclosure.builder import Builder

TYPE_CHECKING = False  # avoids importing `typing`, which takes half as long as starting Python
if TYPE_CHECKING:
    from pools.runtimes.shim.records import Record

# Name of a record in the runtime's directory.
# The record contains the bubblewrap command and the digest of the enclosure to prepare.
FILE = "enclosure"


class PreparedEnclosure:
    """Enclosure without a pod's own mounts. `digest` identifies its command and mounted files."""

    def __init__(self, digest: str, builder: Builder) -> None:
        self._digest, self._builder = digest, builder

    def take(self, order: Record) -> Builder | None:
        """Return the builder if it is running and its enclosure suits the pod.

        Otherwise, stop it and return None.
        """
        if dict(order).get("prepared") == self._digest and self._builder.is_running():
            return self._builder
        self._builder.end()
        return None
