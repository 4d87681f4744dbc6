"""Brute-force reference for reclaim that tries every set of running gangs.

It covers one pool, whole GPUs and inelastic gangs of one role, in clusters small enough to try everything. It
uses no engine code, only the shares that the engine reports.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

Path = tuple[str, ...]  # (department, project)


@dataclass(frozen=True)
class QueueShare:
    """A queue's quota and fair share in GPUs. None means an unlimited quota."""

    quota: int | None
    share: int

    @property
    def deserved(self) -> float:
        return float("inf") if self.quota is None else max(self.quota, self.share)

    @property
    def in_quota(self) -> float:
        return float("inf") if self.quota is None else self.quota


@dataclass(frozen=True)
class RunningGang:
    """A running gang whose replicas have the same number of GPUs on these nodes."""

    name: str
    path: Path
    gpus: int
    nodes: tuple[str, ...]
    may_go: bool = True  # True if the workload is preemptible and past its minimum runtime

    @property
    def all_gpus(self) -> int:
        return self.gpus * len(self.nodes)


@dataclass(frozen=True)
class PendingGang:
    path: Path
    gpus: int
    replicas: int

    @property
    def all_gpus(self) -> int:
        return self.gpus * self.replicas


@dataclass(frozen=True)
class Cluster:
    nodes: Mapping[str, int]
    queue_shares: Mapping[str, QueueShare]
    gangs: Sequence[RunningGang]

    def held(self, queue: str, without: Sequence[RunningGang] = ()) -> int:
        return sum(g.all_gpus for g in self.gangs if queue in g.path and g not in without)

    def fits(self, pending_gang: PendingGang, without: Sequence[RunningGang]) -> bool:
        free = dict(self.nodes)
        for gang in self.gangs:
            for node in gang.nodes if gang not in without else ():
                free[node] -= gang.gpus
        return sum(left // pending_gang.gpus for left in free.values()) >= pending_gang.replicas


def allowed_victim_sets(cluster: Cluster, pending_gang: PendingGang) -> Iterator[tuple[RunningGang, ...]]:
    """Yield every set of victims that is allowed and sufficient, smallest first."""
    project = pending_gang.path[-1]
    if cluster.held(project) + pending_gang.all_gpus > cluster.queue_shares[project].deserved:
        return
    may_go = [gang for gang in cluster.gangs if gang.may_go and gang.path != pending_gang.path]
    for many in range(1, len(may_go) + 1):
        for chosen in combinations(may_go, many):
            if cluster.fits(pending_gang, chosen) and is_allowed(cluster, pending_gang, chosen):
                yield chosen


def is_allowed(cluster: Cluster, pending_gang: PendingGang, chosen: Sequence[RunningGang]) -> bool:
    sides: dict[tuple[str, str], list[RunningGang]] = {}
    for gang in chosen:
        sides.setdefault(_diverging_queues(pending_gang.path, gang.path), []).append(gang)
    for (mine, theirs), victims in sides.items():
        threshold = cluster.queue_shares[theirs].deserved
        if cluster.held(mine) + pending_gang.all_gpus <= cluster.queue_shares[mine].in_quota:
            threshold = cluster.queue_shares[theirs].in_quota
        last = max(gang.all_gpus for gang in victims)
        if cluster.held(theirs, victims) + last <= threshold:
            return False  # the queue was at its threshold before its last victim
        ours = _saturation(cluster.held(mine, chosen) + pending_gang.all_gpus, cluster.queue_shares[mine])
        if ours > 1 and ours >= _saturation(cluster.held(theirs, chosen), cluster.queue_shares[theirs]):
            return False
    return True


def _saturation(held: int, queue: QueueShare) -> float:
    if queue.deserved == 0:
        return float("inf") if held else 0.0
    return held / queue.deserved


def _diverging_queues(mine: Path, theirs: Path) -> tuple[str, str]:
    return next((a, b) for a, b in zip(mine, theirs, strict=True) if a != b)
