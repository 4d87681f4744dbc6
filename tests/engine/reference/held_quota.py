"""Reference calculation of the quota held for a workload of higher priority."""

from collections.abc import Mapping

from berth.core.values.amounts import RESOURCES
from scheduler.engine.model import Snapshot, Workload
from scheduler.engine.plan import Blocker
from tests.engine.reference.replay import roles


def held_quota(
    snapshot: Snapshot, workload: Workload, blocker: Blocker, allocated: int
) -> Mapping[str, object]:
    if "behind" not in blocker.numbers:
        return {}
    first = next(other for other in snapshot.workloads if other.name == blocker.numbers["behind"])
    assert not first.preemptible and first.priority > workload.priority
    assert first.project == workload.project == blocker.numbers["queue"]
    kind, bound = RESOURCES.index(str(blocker.numbers["resource"])), blocker.numbers["bound"]
    held, requested = _requested(first, kind), _requested(workload, kind)
    assert isinstance(bound, int) and allocated + requested <= bound < allocated + requested + held
    return {"requested": requested, "allocated": allocated, "held": held}


def _requested(workload: Workload, kind: int) -> int:
    return sum(role.min * role.request.amounts[kind] for role in roles(workload.tree))
