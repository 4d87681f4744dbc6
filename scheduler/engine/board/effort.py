"""Limits on the placement attempts of one workload or project in a cycle.

Attempts are counted, not timed, so that every machine gives up at the same point.
"""

from dataclasses import dataclass

from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import QueueAccount

MOST_OF_WORKLOAD = 50_000  # replicas tried per workload and cycle, over all attempts
MOST_OF_PROJECT = 200_000
ALWAYS_TRIED = 3  # attempts that every workload gets, however large


@dataclass(slots=True)
class Effort:
    trials: int = 0
    replicas: int = 0
    exhausted: bool = False


class Efforts:
    """Placement attempts of this cycle, by workload and by project."""

    def __init__(self) -> None:
        self._spent: dict[str | QueueAccount, Effort] = {}

    def may_try(self, gang: Gang, replicas: int) -> bool:
        """Count one more attempt to place `replicas` pods.

        Return False if the gang has used up its attempts.
        """
        own = self._spent.get(gang.name)
        if own is None:
            own = self._spent[gang.name] = Effort()
        projects = self._spent.get(gang.account)
        if projects is None:
            projects = self._spent[gang.account] = Effort()
        if own.trials >= ALWAYS_TRIED and (
            own.replicas + replicas > MOST_OF_WORKLOAD or projects.replicas + replicas > MOST_OF_PROJECT
        ):
            own.exhausted = True
            return False
        for effort in (own, projects):
            effort.trials += 1
            effort.replicas += replicas
        return True

    def exhausted(self, gang: Gang) -> int:
        """Return the number of attempts after which the scheduler gave up on the gang, or 0."""
        own = self._spent.get(gang.name)
        return own.trials if own is not None and own.exhausted else 0
