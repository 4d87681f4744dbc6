"""Audit data of evictions: parties, rule, and queues before and after."""

from collections.abc import Sequence

from berth.core.words import gpus
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import Gang
from scheduler.engine.board.ledger import NO_BOUND, Account, amounts
from scheduler.engine.explain.reasons import blockers
from scheduler.engine.plan import Blocker, Eviction, Kind, Standing
from scheduler.engine.preemption.outcome import Outcome
from scheduler.engine.preemption.selection import Taker
from scheduler.engine.preemption.victims import Lump

Held = dict[Account, tuple[int, ...]]

RULES = {
    "above_share": "{victim} held {held}, more than its quota and fair share of {share}",
    "within_quota": "{winner} stays within its quota of {quota}, and {victim} was above its own",
    "priority": "in {victim}, priority {higher} goes before priority {lower}",
    "fulfilment": "growth in {victim} makes way for a gang's minimum",
    "consolidate": "moved, to make one free block of several",
    "turn": "{winner} is owed a turn: {victim} used more for its weight",
}


def evictions(taker: Taker, outcome: Outcome, before: Held) -> tuple[Eviction, ...]:
    """One entry for each gang that loses or moves pods. The board stands as it will."""
    gang, standings = taker.law.gang, _Standings(taker.board, before)
    winner = standings.path(gang.account)
    refused = blockers(taker.board.reasons(gang))
    by_gang: dict[str, list[Lump]] = {}
    for lump in outcome.lost:
        if all(taker.board.is_fresh(pod) for _, pod in lump.pods):
            continue  # it was only going to start
        by_gang.setdefault(lump.gang.name, []).append(lump)
    found = []
    for name, lumps in by_gang.items():
        whole = any(lump.whole for lump in lumps)
        found.append(
            Eviction(
                kind=taker.law.kind if whole else Kind.SHRINK,
                workload=name,
                beneficiary=gang.name,
                rule=_rule(taker, lumps[-1], before),
                pods=_pods(taker, lumps),
                whole=whole,
                victim=standings.path(lumps[0].gang.account),
                winner=winner,
                refused=refused,
                lost_gpu_seconds=sum(lump.lost for lump in lumps),
                earns_backoff=taker.rules[id(lumps[-1])] != "turn",
            )
        )
    return (*found, *_moves(taker, outcome, standings, refused))


def _pods(taker: Taker, lumps: Sequence[Lump]) -> tuple[tuple[str, int], ...]:
    """What really stood; the rest was only going to start."""
    held = [pod for lump in lumps for _, pod in lump.pods]
    return tuple((pod.role, pod.index) for pod in held if not taker.board.is_fresh(pod))


def _moves(
    taker: Taker, outcome: Outcome, standings: "_Standings", refused: tuple[Blocker, ...]
) -> list[Eviction]:
    by_gang: dict[str, tuple[Gang, list[tuple[str, int]]]] = {}
    for gang, _, pod, _ in outcome.moved:
        if taker.board.is_fresh(pod):
            continue  # it starts somewhere else instead
        by_gang.setdefault(gang.name, (gang, []))[1].append((pod.role, pod.index))
    return [
        Eviction(
            Kind.CONSOLIDATE, name, taker.law.gang.name, RULES["consolidate"], tuple(pods), False,
            standings.path(gang.account), standings.path(taker.law.gang.account), refused,
        )
        for name, (gang, pods) in by_gang.items()
    ]  # fmt: skip


class _Standings:
    """Each queue's standing, written once however many evictions name it."""

    def __init__(self, board: Board, before: Held) -> None:
        self._before, self._paths = before, dict[Account, tuple[Standing, ...]]()
        self._usage = board.pool.fair_share.time_based

    def path(self, account: Account) -> tuple[Standing, ...]:
        if account not in self._paths:
            self._paths[account] = tuple(self._standing(step) for step in account.path)
        return self._paths[account]

    def _standing(self, account: Account) -> Standing:
        return Standing(
            account.name,
            account.entitlement.quota,
            amounts(account.share),
            amounts(self._before[account]),
            amounts(account.allocated),
            account.entitlement.usage.normalised(0) if self._usage else 0.0,
        )


def _rule(taker: Taker, lump: Lump, before: Held) -> str:
    sides = taker.law.parting(lump.gang.account)
    winner, victim = sides or (taker.law.gang.account, lump.gang.account)
    return RULES[taker.rules[id(lump)]].format(
        victim=victim.name,
        winner=winner.name,
        held=gpus(before[victim][0]),
        share=gpus(victim.entitled[0]),
        quota=gpus(None if winner.quota[0] >= NO_BOUND else winner.quota[0]),
        higher=taker.law.gang.workload.priority,
        lower=lump.gang.workload.priority,
    )
