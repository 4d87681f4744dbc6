"""Read the logs of pods on Kubernetes from local copies. The copies are updated first."""

from collections.abc import Sequence
from pathlib import Path

from pools.kubernetes.logs.copies import LogCopies
from pools.runtimes import local_log, log_times
from pools.runtimes.base import LogChunk, LogTime
from pools.runtimes.ledger import Ledger, LedgerEntry


class LogReadingMixin:
    """Mixin that reads logs for the Kubernetes runtime."""

    ledger: Ledger
    _copies: LogCopies

    def read_log(self, pod_id: str, offset: int, limit: int) -> LogChunk:
        path, ended = self._update_and_locate_log(pod_id, in_worker=False)
        return local_log.read_log(path, offset, limit, ended)

    def tail_log(self, pod_id: str, lines: int) -> LogChunk:
        """Return the last lines of the log. Raises RuntimeFailure if the cluster is too slow."""
        path, ended = self._update_and_locate_log(pod_id, in_worker=True)
        return local_log.tail_log(path, lines, ended)

    def read_log_times(self, pod_id: str, start: int, end: int) -> Sequence[LogTime]:
        """Return the times of lines that have already been read. The cluster records whole seconds."""
        return log_times.read_times(self._log_path(pod_id), start, end)

    def _update_and_locate_log(self, pod_id: str, *, in_worker: bool) -> tuple[Path, bool]:
        """Update the copy of the pod's log. Return its path, and whether the pod has ended."""
        final = self.ledger.log_path(pod_id)
        entry = None if final.exists() else self.ledger.find(pod_id)
        if entry is None or not entry.received:
            return final, True
        self._update_log(pod_id, entry, in_worker=in_worker)
        return self._log_path(pod_id), entry.ended is not None

    def _log_path(self, pod_id: str) -> Path:
        final = self.ledger.log_path(pod_id)
        return final if final.exists() else self._copies.path(pod_id)

    def _update_log(self, pod_id: str, entry: LedgerEntry, *, in_worker: bool) -> None:
        raise NotImplementedError
