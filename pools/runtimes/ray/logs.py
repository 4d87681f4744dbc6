"""Read the logs of pods on Ray nodes."""

from collections.abc import Sequence

from pools.runtimes import local_log, log_times
from pools.runtimes.base import LogChunk, LogTime
from pools.runtimes.ledger import Ledger
from pools.runtimes.ray.agents import NodeAgent


class RayLogs:
    """Mixin that reads logs for the Ray runtime."""

    ledger: Ledger

    def read_log(self, pod_id: str, offset: int, limit: int) -> LogChunk:
        agent = self._log_agent(pod_id)
        if agent is None:
            return local_log.read_log(self.ledger.log_path(pod_id), offset, limit, True)
        return agent.read_log(pod_id, offset, limit)

    def tail_log(self, pod_id: str, lines: int) -> LogChunk:
        agent = self._log_agent(pod_id)
        if agent is None:
            return local_log.tail_log(self.ledger.log_path(pod_id), lines, True)
        return agent.tail_log(pod_id, lines)

    def read_log_times(self, pod_id: str, start: int, end: int) -> Sequence[LogTime]:
        agent = self._log_agent(pod_id)
        if agent is None:
            return log_times.read_times(self.ledger.log_path(pod_id), start, end)
        return agent.read_log_times(pod_id, start, end)

    def _log_agent(self, pod_id: str) -> NodeAgent | None:
        """Return the agent that can send the log, or None if the log is local or does not exist."""
        return None if self.ledger.log_path(pod_id).exists() else self._node_agent(pod_id)

    def _node_agent(self, pod_id: str) -> NodeAgent | None:
        raise NotImplementedError
