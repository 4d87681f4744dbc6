"""Invariants for gangs: all or nothing.

Each invariant yields one sentence per violation and uses none of the engine's own logic.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil

from scheduler.engine.model import (
    PodState,
    Role,
    RoleGroup,
    Snapshot,
)
from scheduler.engine.plan import Place, Plan
from tests.engine.reference.replay import (
    Cluster,
    evicted,
    placed,
    replay_plan,
    replay_steps,
    roles,
)

Broken = Iterator[str]


def gangs_run_whole_or_not_at_all(snapshot: Snapshot, plan: Plan) -> Broken:
    """Check that gangs meet their minimum, except for incomplete gangs that keep their pods."""
    cluster, before = replay_plan(snapshot, plan), Cluster(snapshot)
    for name in sorted({name for bundle in plan.bundles for name in placed(bundle) | evicted(bundle)}):
        counts = cluster.counts(name)
        broken = cluster.of(name) and not cluster.is_whole(name)
        if broken and not (before.of(name) and cluster.keeps_its_pods(name, before)):
            yield f"{name} is left with {dict(counts)}"
        for role in roles(cluster.workloads[name].tree):
            indexes = [pod.index for pod in cluster.of(name) if pod.role == role.name]
            if len(indexes) > role.max:
                yield f"{name} has {len(indexes)} replicas of {role.name}, at most {role.max}"
            if len(set(indexes)) != len(indexes):
                yield f"{name} has a duplicate index in {role.name}: {indexes}"


def groups_run_whole_or_not_at_all(snapshot: Snapshot, plan: Plan) -> Broken:
    """Check at each level that no part of a newly started tree runs below its minimum."""
    cluster = replay_plan(snapshot, plan)
    fresh = {w.name for w in snapshot.workloads if not any(p.state is not PodState.STOPPING for p in w.pods)}
    for name in sorted(fresh & {name for bundle in plan.bundles for name in placed(bundle)}):
        yield from _parts(name, cluster.workloads[name].tree, cluster.counts(name))


def _parts(name: str, node: RoleGroup | Role, counts: dict[str, int]) -> Broken:
    if isinstance(node, Role):
        if 0 < counts.get(node.name, 0) < node.min:
            yield f"{name}: {node.name} runs {counts[node.name]} of {node.min}"
        return
    for child in node.children:
        yield from _parts(name, child, counts)


def gangs_start_together(snapshot: Snapshot, plan: Plan) -> Broken:
    """Check that no minimum replica starts while other minimum replicas have only reservations."""
    for bundle, before, _ in replay_steps(snapshot, plan):
        for name in placed(bundle):
            steps = [s for s in bundle.steps if isinstance(s, Place) and s.workload == name]
            if len({step.reserved for step in steps}) > 1 and not before.is_whole(name):
                yield f"only part of {name} starts"


def follower_roles_keep_their_ratio(snapshot: Snapshot, plan: Plan) -> Broken:
    """Check that a role that scales with another role keeps its ratio if the plan changes the gang."""
    cluster = replay_plan(snapshot, plan)
    for name in sorted({name for bundle in plan.bundles for name in placed(bundle) | evicted(bundle)}):
        counts = cluster.counts(name)
        for role in roles(cluster.workloads[name].tree) if cluster.of(name) else ():
            if role.scale_with is not None:
                allowed = ceil(Fraction(str(role.scale_with.ratio)) * counts.get(role.scale_with.role, 0))
                if counts.get(role.name, 0) > min(role.max, max(role.min, allowed)):
                    yield f"{name} has {counts[role.name]} of {role.name}, its leader allows {allowed}"


INVARIANTS = (
    follower_roles_keep_their_ratio,
    gangs_run_whole_or_not_at_all,
    groups_run_whole_or_not_at_all,
    gangs_start_together,
)
