"""Brute-force reference for plans that combine evictions and moves.

It covers one pool, whole GPUs and inelastic gangs of one role. All preemptible pods may move, so gangs of the
same project and size are interchangeable, and a plan is a number of victims of each kind.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from tests.engine.reference.reclaim import Cluster, PendingGang, RunningGang, is_allowed


@dataclass(frozen=True)
class Victims:
    """Victims that make room for the pending gang after the other preemptible pods are repacked."""

    gangs: tuple[RunningGang, ...]
    below_quota: int  # GPUs that the evictions leave queues short of their quota

    @property
    def gpus(self) -> int:
        return sum(gang.all_gpus for gang in self.gangs)


def sufficient_victims(cluster: Cluster, pending_gang: PendingGang) -> Iterator[Victims]:
    """Yield every allowed set of victims that is sufficient together with moves, including the empty set."""
    project = pending_gang.path[-1]
    if cluster.held(project) + pending_gang.all_gpus > cluster.queue_shares[project].deserved:
        return
    alike: dict[tuple[object, ...], list[RunningGang]] = {}
    for gang in cluster.gangs:
        if gang.may_go and gang.path != pending_gang.path:
            alike.setdefault((gang.path, gang.gpus, len(gang.nodes)), []).append(gang)
    free = sum(cluster.nodes.values()) - sum(gang.all_gpus for gang in cluster.gangs)
    for counts in product(*(range(len(gangs) + 1) for gangs in alike.values())):
        chosen = tuple(
            gang for gangs, count in zip(alike.values(), counts, strict=True) for gang in gangs[:count]
        )
        if (
            free + sum(gang.all_gpus for gang in chosen) >= pending_gang.all_gpus
            and is_allowed(cluster, pending_gang, chosen)
            and _fits_repacked(cluster, pending_gang, chosen)
        ):
            yield Victims(chosen, missing_quota(cluster, pending_gang, chosen))


def missing_quota(cluster: Cluster, pending_gang: PendingGang, chosen: Sequence[RunningGang]) -> int:
    """Return the total number of GPUs that victim queues are below quota.

    For a queue that was already below quota, only its losses count.
    """
    queues = {queue for gang in chosen for queue in gang.path} - {*pending_gang.path}
    result = 0
    for queue in queues:
        quota, before = cluster.queue_shares[queue].in_quota, cluster.held(queue)
        result += int(max(0, min(quota, before) - cluster.held(queue, chosen)))
    return result


def _fits_repacked(cluster: Cluster, pending_gang: PendingGang, without: Sequence[RunningGang]) -> bool:
    free, sizes = dict(cluster.nodes), [pending_gang.gpus] * pending_gang.replicas
    for gang in cluster.gangs:
        if gang in without:
            continue
        if gang.may_go:
            sizes += [gang.gpus] * len(gang.nodes)
            continue
        for node in gang.nodes:
            free[node] -= gang.gpus
    return _packs(tuple(sorted(free.values())), tuple(sorted(Counter(sizes).items(), reverse=True)))


@cache
def _packs(bins: tuple[int, ...], sizes: tuple[tuple[int, int], ...]) -> bool:
    """Return whether pods, given as (size, count) from largest to smallest, fit into the bins."""
    if not sizes:
        return True
    if sum(size * count for size, count in sizes) > sum(bins):
        return False
    (size, count), rest = sizes[0], sizes[1:]
    left = ((size, count - 1), *rest) if count > 1 else rest
    for i in {free: i for i, free in enumerate(bins)}.values():
        if bins[i] >= size and _packs(tuple(sorted((*bins[:i], bins[i] - size, *bins[i + 1 :]))), left):
            return True
    return False
