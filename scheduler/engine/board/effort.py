"""Limits on placement attempts per workload and project in one cycle.

Attempts are counted, not timed, so that decisions do not depend on the machine.
"""

from dataclasses import dataclass

from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import QueueAccount

# Maximum numbers of replicas tried per cycle, summed over all attempts.
MAX_REPLICAS_PER_WORKLOAD = 50_000
MAX_REPLICAS_PER_PROJECT = 200_000
MIN_ATTEMPTS = 3  # minimum number of attempts per workload, however large the workload is


@dataclass(slots=True)
class AttemptCount:
    trials: int = 0
    replicas: int = 0
    exhausted: bool = False


class PlacementAttempts:
    """Counters of this cycle's placement attempts, by workload and by project."""

    def __init__(self) -> None:
        self._spent: dict[str | QueueAccount, AttemptCount] = {}

    def use_attempt(self, gang: Gang, replicas: int) -> bool:
        """Count another attempt to place `replicas` pods. Return False if the gang has no attempts left."""
        own = self._spent.get(gang.name)
        if own is None:
            own = self._spent[gang.name] = AttemptCount()
        projects = self._spent.get(gang.account)
        if projects is None:
            projects = self._spent[gang.account] = AttemptCount()
        if own.trials >= MIN_ATTEMPTS and (
            own.replicas + replicas > MAX_REPLICAS_PER_WORKLOAD
            or projects.replicas + replicas > MAX_REPLICAS_PER_PROJECT
        ):
            own.exhausted = True
            return False
        for count in (own, projects):
            count.trials += 1
            count.replicas += replicas
        return True

    def exhausted_attempts(self, gang: Gang) -> int:
        """Return the number of attempts that the gang has used if it has reached its limit, else 0."""
        own = self._spent.get(gang.name)
        return own.trials if own is not None and own.exhausted else 0
