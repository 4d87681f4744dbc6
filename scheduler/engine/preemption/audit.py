"""Audit records of evictions: victim, preemptor, rule, and the queues' state before and after."""

from collections.abc import Sequence

from berth.core.values.amounts import MILLI
from berth.core.wording.words import format_count, format_gpus
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import GPU, NO_BOUND, QueueAccount, QueueGroup, to_amounts
from scheduler.engine.explain.reasons import blockers
from scheduler.engine.plan import Blocker, Eviction, Kind, QueueImpact
from scheduler.engine.preemption.outcome import EvictionOutcome
from scheduler.engine.preemption.victims.selection import VictimSelection
from scheduler.engine.preemption.victims.units import Victim

AllocatedByQueue = dict[QueueAccount, tuple[int, ...]]

RULES = {
    "above_share": ("{victim} had {allocated} allocated or reserved, more than its {bounds}"),
    "within_quota": "{preemptor} stays within its quota of {quota}, and {victim} was over its own",
    "priority": "in {victim}, priority {higher} preempts priority {lower}",
    "fulfilment": "{victim} is scaled down so that a pending gang can start with its minimum",
    "consolidate": "moved to consolidate free capacity",
    "turn": "{victim} has the higher decayed usage relative to its weight, so it is {preemptor}'s turn",
}


def eviction_records(
    selection: VictimSelection, outcome: EvictionOutcome, before: AllocatedByQueue
) -> tuple[Eviction, ...]:
    """Return an audit record for each gang that loses or moves pods, given the board's final state."""
    gang, impacts = selection.policy.gang, _QueueImpacts(selection.board, before)
    winner = impacts.impacts_on_path(gang.account)
    rejected = blockers(selection.board.pending_reasons(gang))
    by_gang: dict[str, list[Victim]] = {}
    for victim in outcome.evicted:
        if all(selection.board.is_newly_placed(pod) for _, pod in victim.pods):
            continue  # the victim was placed in this cycle and has not started
        by_gang.setdefault(victim.gang.name, []).append(victim)
    result = []
    for name, victims in by_gang.items():
        whole = any(victim.is_gang for victim in victims)
        result.append(
            Eviction(
                kind=(selection.policy.eviction_kind or selection.policy.kind) if whole else Kind.SHRINK,
                workload=name,
                preemptor=gang.name,
                rule=_format_rule(selection, victims[-1], before),
                pods=_evicted_pods(selection, victims),
                whole=whole,
                victim=impacts.impacts_on_path(victims[0].gang.account),
                winner=winner,
                rejected=rejected,
                lost_gpu_seconds=sum(victim.lost_gpu_seconds for victim in victims),
                earns_backoff=selection.rules[id(victims[-1])] != "turn",
            )
        )
    return (*result, *_move_records(selection, outcome, impacts, rejected))


def _evicted_pods(selection: VictimSelection, victims: Sequence[Victim]) -> tuple[tuple[str, int], ...]:
    """Return the victims' pods, except pods that this cycle placed."""
    pods = [pod for victim in victims for _, pod in victim.pods]
    return tuple((pod.role, pod.index) for pod in pods if not selection.board.is_newly_placed(pod))


def _move_records(
    selection: VictimSelection,
    outcome: EvictionOutcome,
    impacts: "_QueueImpacts",
    rejected: tuple[Blocker, ...],
) -> list[Eviction]:
    by_gang: dict[str, tuple[Gang, list[tuple[str, int]]]] = {}
    for gang, _, pod, _ in outcome.moved:
        if selection.board.is_newly_placed(pod):
            continue  # the pod has not started; it will start on another node
        by_gang.setdefault(gang.name, (gang, []))[1].append((pod.role, pod.index))
    return [
        Eviction(
            Kind.CONSOLIDATE, name, selection.policy.gang.name, RULES["consolidate"], tuple(pods), False,
            impacts.impacts_on_path(gang.account),
            impacts.impacts_on_path(selection.policy.gang.account), rejected,
        )
        for name, (gang, pods) in by_gang.items()
    ]  # fmt: skip


class _QueueImpacts:
    """Impact of the evictions on each queue, computed once per queue."""

    def __init__(self, board: Board, before: AllocatedByQueue) -> None:
        self._before, self._paths = before, dict[QueueAccount, tuple[QueueImpact, ...]]()
        self._usage = board.pool.fair_share.time_based

    def impacts_on_path(self, account: QueueAccount) -> tuple[QueueImpact, ...]:
        if account not in self._paths:
            self._paths[account] = tuple(self._queue_impact(step) for step in account.path)
        return self._paths[account]

    def _queue_impact(self, account: QueueAccount) -> QueueImpact:
        return QueueImpact(
            account.name,
            account.pool_quota.quota,
            to_amounts(account.share),
            to_amounts(self._before[account]),
            to_amounts(account.allocated),
            account.pool_quota.usage.fraction_of_parent(0) if self._usage else 0.0,
        )


def _format_rule(selection: VictimSelection, victim: Victim, before: AllocatedByQueue) -> str:
    rule = selection.rules[id(victim)]
    sides = selection.policy.compared_queues(victim.gang.account, rule)
    preemptor_queue, victim_queue = sides or (selection.policy.gang.account, victim.gang.account)
    text = RULES[rule].format(
        victim=victim_queue.name,
        preemptor=preemptor_queue.name,
        allocated=format_gpus(before[victim_queue][0]),
        bounds=_format_bounds(victim_queue),
        quota=format_gpus(None if preemptor_queue.quota[0] >= NO_BOUND else preemptor_queue.quota[0]),
        higher=selection.policy.gang.workload.priority,
        lower=victim.gang.workload.priority,
    )
    return (
        text
        if victim_queue.group is None
        else f"{text}{_quota_group_clause(victim_queue, victim_queue.group)}"
    )


def _format_bounds(account: QueueAccount) -> str:
    share = f"fair share of {format_count(account.deserved[GPU] / MILLI, 'GPU')}"
    if account.group is not None or account.quota[GPU] >= NO_BOUND:
        return share
    return f"quota of {format_count(account.quota[GPU] / MILLI, 'GPU')} and its {share}"


def _quota_group_clause(account: QueueAccount, group: QueueGroup) -> str:
    """Return a clause about the queue's allocation in the other pools of its quota group, or an empty string
    if it has none.
    """
    elsewhere = sum(other.allocated[GPU] for other in group.accounts.values() if other is not account)
    if not elsewhere:
        return ""
    quota = format_gpus(group.pool_quota.quota[GPU])
    return (
        f"; its quota in {group.name} is {quota}, and it has {format_gpus(elsewhere)} allocated in "
        "the group's other pools"
    )
