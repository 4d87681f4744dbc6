"""Count the requests of all workloads in a pool."""

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler.engine.board.gang import LIVE_STATES, BoardRole, Gang
from scheduler.engine.model import Request

# Request, node mask, and the requested fraction of the smallest matching device.
RequestKind = tuple[Request, bytes | None, int]


@dataclass(slots=True)
class RequestCount:
    roles: int = 0
    replicas: int = 0


class RequestMix:
    """Counts of GPU requests, built on first use and then kept up to date."""

    def __init__(self, gangs: Mapping[str, Gang]) -> None:
        self._gangs = gangs
        self._counts: dict[RequestKind, RequestCount] | None = None

    @property
    def counts(self) -> Mapping[RequestKind, RequestCount]:
        if self._counts is None:
            self._counts = {}
            for gang in self._gangs.values():
                self.count_gang(gang, 1)
        return self._counts

    def count_gang(self, gang: Gang, sign: int) -> None:
        """Add the gang's GPU roles to the mix, or remove them if `sign` is -1."""
        if self._counts is None:
            return
        for part in gang.parts:
            if part.request.devices:
                requested = part.request, part.mask, part.milli
                count = self._counts.get(requested) or self._counts.setdefault(requested, RequestCount())
                count.roles += sign
                count.replicas += sign * max(part.role.min, _live_replicas(gang, part))
                if not count.roles:
                    del self._counts[requested]


def _live_replicas(gang: Gang, part: BoardRole) -> int:
    if not gang.pods:
        return 0
    return sum([pod.role == part.role.name and pod.state in LIVE_STATES for pod in gang.pods])
