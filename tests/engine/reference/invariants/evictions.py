"""Invariants for evictions: victims, preemptors and rules.

Each invariant yields one sentence per violation and uses none of the engine's own logic.
"""

from collections import defaultdict
from collections.abc import Iterator

from berth.core.values.amounts import RESOURCES, Amounts, Bounds
from scheduler.engine.model import (
    Snapshot,
    Workload,
)
from scheduler.engine.plan import Evict, Kind, Plan
from tests.engine.reference.replay import (
    ALIVE,
    Cluster,
    collect_bounds,
    placed,
    replay_steps,
    requested,
    roles,
)

Broken = Iterator[str]
FOR_ANOTHER = (Kind.CONSOLIDATE, Kind.RECLAIM, Kind.PREEMPT)


def non_preemptible_workloads_are_never_evicted(snapshot: Snapshot, plan: Plan) -> Broken:
    firm = {w.name: w for w in snapshot.workloads if not w.preemptible}
    for bundle in plan.bundles:
        for eviction in bundle.evictions:
            if eviction.workload in firm and eviction.kind in FOR_ANOTHER:
                yield f"non-preemptible {eviction.workload} is evicted ({eviction.kind}): {bundle.workload}"


def every_eviction_names_victim_rule_and_preemptor(snapshot: Snapshot, plan: Plan) -> Broken:
    """Check that each eviction names its victim, its rule and a preemptor placed by the same bundle."""
    for bundle in plan.bundles:
        audited = {(e.workload, *pod) for e in bundle.evictions for pod in e.pods}
        evicted = {(s.workload, s.role, s.index) for s in bundle.steps if isinstance(s, Evict)}
        if audited != evicted:
            yield f"bundle for {bundle.workload}: audit and steps differ: {sorted(audited ^ evicted)}"
        for eviction in bundle.evictions:
            if not eviction.rule:
                yield f"{eviction.workload} is evicted without a rule"
            if eviction.kind in FOR_ANOTHER and eviction.preemptor is None:
                yield f"{eviction.workload} is evicted ({eviction.kind}) without a preemptor"
            if eviction.preemptor not in (None, eviction.workload, *placed(bundle)):
                yield f"{eviction.preemptor} gets nothing for the eviction of {eviction.workload}"


def consolidation_places_every_moved_pod(snapshot: Snapshot, plan: Plan) -> Broken:
    settings = {pool.name: pool.consolidation for pool in snapshot.pools}
    for bundle, _, after in replay_steps(snapshot, plan):
        if bundle.kind is not Kind.CONSOLIDATE:
            continue
        most = settings[bundle.pool].max_moves
        moved = [step for step in bundle.steps if isinstance(step, Evict)]
        if not settings[bundle.pool].enabled:
            yield "consolidation is disabled"
        if most is not None and len(moved) > most:
            yield f"{len(moved)} moves, at most {most}"
        for step in moved:
            if not any(p.role == step.role and p.index == step.index for p in after.of(step.workload)):
                yield f"{step.workload} {step.role}-{step.index} is moved away and not placed again"


def priority_preempts_only_within_a_project(snapshot: Snapshot, plan: Plan) -> Broken:
    workloads = {w.name: w for w in snapshot.workloads}
    for bundle in plan.bundles:
        winner = workloads[bundle.workload]
        for eviction in bundle.evictions:
            victim = workloads[eviction.workload]
            together = victim.project == winner.project
            if eviction.kind is Kind.PREEMPT and (not together or victim.priority >= winner.priority):
                yield f"{winner.name} preempts {victim.name}: {victim.priority} against {winner.priority}"
            if eviction.kind is Kind.RECLAIM and together:
                yield f"{winner.name} reclaims from {victim.name} of its own project"


def reclaim_takes_from_queues_over_quota(snapshot: Snapshot, plan: Plan) -> Broken:
    """Check that the victim's queue below the common ancestor was over quota in a requested resource."""
    quotas = collect_bounds(snapshot, lambda pool_quota: pool_quota.quota)
    for bundle, before, _ in replay_steps(snapshot, plan):
        winner = before.workloads[bundle.workload]
        wanted = _requested_kinds(winner)
        for eviction in bundle.evictions:
            if eviction.kind is not Kind.RECLAIM or eviction.workload in placed(bundle):
                continue
            queue = _diverging_queue(before, eviction.workload, winner.name)
            quota = quotas.get((bundle.pool, queue)) or Bounds(0, None, None)
            held = before.allocated(bundle.pool, queue)
            if all(
                most is None or have <= most
                for kind, most, have in zip(RESOURCES, quota, held, strict=True)
                if kind in wanted
            ):
                yield f"{queue} has {held} of quota {quota} allocated and is reclaimed for {winner.name}"


def reclaim_leaves_queues_their_quota(snapshot: Snapshot, plan: Plan) -> Broken:
    """Check that each victim's queue is still at or over quota after the eviction, unless the victim
    straddled the quota. Extra replicas that are evicted with gangs also count as victims.
    """
    quotas = collect_bounds(snapshot, lambda pool_quota: pool_quota.quota)
    for bundle, before, after in replay_steps(snapshot, plan):
        winner = before.workloads[bundle.workload]
        wanted = _requested_kinds(winner)
        by_queue: dict[str, list[Amounts]] = defaultdict(list)
        for eviction in bundle.evictions:
            is_reclaimed = eviction.kind is Kind.RECLAIM or (
                bundle.kind is Kind.RECLAIM and eviction.kind is Kind.SHRINK
            )
            if is_reclaimed and eviction.workload not in placed(bundle):
                queue = _diverging_queue(before, eviction.workload, winner.name)
                by_queue[queue].append(_freed_by(before, after, eviction.workload))
        for queue, amounts in by_queue.items():
            quota = quotas.get((bundle.pool, queue)) or Bounds(0, None, None)
            left = after.allocated(bundle.pool, queue)
            biggest = [max(column) for column in zip(*amounts, strict=True)]
            if all(
                most is None or have + most_of_one <= most
                for kind, most, have, most_of_one in zip(RESOURCES, quota, left, biggest, strict=True)
                if kind in wanted
            ):
                yield f"{queue} is left with {left}, quota {quota}, largest victim {biggest}"


def only_queues_below_their_share_reclaim(snapshot: Snapshot, plan: Plan) -> Broken:
    """Check that a preemptor's project ends within its quota or fair share. Time-based fairness is exempt."""
    modes = {pool.name: pool.fair_share for pool in snapshot.pools}
    due = {(r.pool, r.queue): (r.quota, r.share) for r in plan.queues}
    for bundle, _, after in replay_steps(snapshot, plan):
        winner = after.workloads[bundle.workload]
        if modes[bundle.pool].time_based or not any(e.kind is Kind.RECLAIM for e in bundle.evictions):
            continue
        held = after.allocated(bundle.pool, winner.project)
        for kind, most, share, have in zip(RESOURCES, *due[bundle.pool, winner.project], held, strict=True):
            if kind in _requested_kinds(winner) and most is not None and have > max(most, share):
                yield f"{winner.name} reclaims, {winner.project} holds {have} of {kind}: {most}, {share}"


def minimum_runtimes_are_respected(snapshot: Snapshot, plan: Plan) -> Broken:
    queues = {queue.name: queue for queue in snapshot.queues}
    pools = {pool.name: pool for pool in snapshot.pools}
    workloads = {w.name: w for w in snapshot.workloads}
    for bundle in plan.bundles:
        for eviction in bundle.evictions:
            if eviction.kind not in (Kind.RECLAIM, Kind.PREEMPT) or not eviction.whole:
                continue
            key = f"{eviction.kind.value}_min_runtime"
            victim = workloads[eviction.workload]
            own: int | None = None
            name: str | None = victim.project
            while own is None and name is not None:
                own, name = getattr(queues[name], key), queues[name].parent
            least = getattr(pools[bundle.pool], key) if own is None else own
            started = victim.started
            if started is not None and snapshot.now - started < least:
                yield f"{victim.name} ran {snapshot.now - started} s of {least} before it was evicted"


def preemption_delay_is_respected(snapshot: Snapshot, plan: Plan) -> Broken:
    for bundle in plan.bundles:
        winner = next(w for w in snapshot.workloads if w.name == bundle.workload)
        own = winner.preemption_delay
        takes = any(e.kind in (Kind.RECLAIM, Kind.PREEMPT) for e in bundle.evictions)
        if takes and own is not None and snapshot.now - winner.submitted < own:
            yield f"{winner.name} evicts within its own delay"


def elastic_replicas_are_evicted_before_gangs(snapshot: Snapshot, plan: Plan) -> Broken:
    """Check that a scaled-down victim keeps its gang, or all gang pods that it still had."""
    for bundle, before, after in replay_steps(snapshot, plan):
        for eviction in bundle.evictions:
            victim, shrunk = eviction.workload, not eviction.whole and eviction.kind is not Kind.STALE_GANG
            if shrunk and not after.is_whole(victim) and not after.keeps_its_pods(victim, before):
                yield f"{victim} is scaled down below its minimum"


def _requested_kinds(workload: Workload) -> set[str]:
    wanted = set()
    for role in roles(workload.tree):
        request = role.request
        if request.devices:
            wanted.add("gpu")
        wanted |= {"cpu"} if request.cpu else set()
        wanted |= {"memory_mib"} if request.memory_mib else set()
    return wanted


def _diverging_queue(cluster: Cluster, victim: str, winner: str) -> str:
    winners = set(cluster.path(winner))
    return [queue for queue in cluster.path(victim) if queue not in winners][-1]


def _freed_by(before: Cluster, after: Cluster, workload: str) -> Amounts:
    total = Amounts()
    for pod in before.of(workload, ALIVE):
        total = total.plus(requested(before.workloads[workload], pod))
    for pod in after.of(workload, ALIVE):
        total = total.minus(requested(after.workloads[workload], pod))
    return total


INVARIANTS = (
    non_preemptible_workloads_are_never_evicted,
    every_eviction_names_victim_rule_and_preemptor,
    consolidation_places_every_moved_pod,
    priority_preempts_only_within_a_project,
    reclaim_takes_from_queues_over_quota,
    reclaim_leaves_queues_their_quota,
    only_queues_below_their_share_reclaim,
    minimum_runtimes_are_respected,
    preemption_delay_is_respected,
    elastic_replicas_are_evicted_before_gangs,
)
