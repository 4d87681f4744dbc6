"""Quota and allocation of each queue in each pool, and the pods that exceed the quota."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from berth.core.values.amounts import Amounts, Bounds
from scheduler.engine.board.board import Board
from scheduler.engine.board.gang import BoardRole, Gang
from scheduler.engine.board.ledger import KINDS, QueueAccount, to_amounts
from scheduler.engine.board.order import gang_sort_key
from scheduler.engine.layout.layout import Layout
from scheduler.engine.model import Pod


class PodsOverQuota(NamedTuple):
    """Over-quota portion of a workload: the number of pods, and the milli-GPU allocated to them."""

    pods: int = 0
    gpu_milli: int = 0


@dataclass(frozen=True, slots=True)
class QueueInPool:
    """State of a queue in a pool before any decision: quota, allocation, and pods over quota, keyed by
    workload.
    """

    quota: Bounds
    allocated: Amounts
    over_quota: Mapping[str, PodsOverQuota]


PlacedPod = tuple[Gang, BoardRole, Pod]


def queues_in_pools(layout: Layout, pools: Collection[str]) -> dict[tuple[str, str], QueueInPool]:
    """Return each queue's state before any decision, keyed by queue and pool.

    Must be called before the engine changes the boards.
    """
    return {
        (queue, name): state
        for name, board in layout.boards.items()
        if name in pools
        for queue, state in _queues_on_board(board).items()
    }


def _queues_on_board(board: Board) -> dict[str, QueueInPool]:
    placed: dict[QueueAccount, list[PlacedPod]] = defaultdict(list)
    for project, gangs in board.by_project.items():
        for gang in gangs.values():
            pods = [(gang, part, pod) for part in gang.parts for pod in part.live.values()]
            for account in project.path:
                placed[account] += pods
    excess: set[int] = set()  # pods over a project's quota, by `id(pod)`
    result: dict[str, QueueInPool] = {}
    # Projects come first: pods over a project's quota are the first to count as over the department's.
    for account in sorted(board.ledger.accounts.values(), key=lambda account: -len(account.path)):
        over = _pods_over_quota(account, placed[account], excess)
        excess |= {id(pod) for _, _, pod in over}
        quota, allocated = account.pool_quota.quota, to_amounts(account.allocated)
        result[account.name] = QueueInPool(quota, allocated, _pods_over_quota_by_workload(over))
    return result


def _pods_over_quota(
    account: QueueAccount, placed: Iterable[PlacedPod], excess: Collection[int]
) -> list[PlacedPod]:
    """Return the pods that do not fit in the quota: preemptible ones first, those in `excess`
    before others.
    """

    def sort_key(placed_pod: PlacedPod) -> tuple[object, ...]:
        gang, part, pod = placed_pod
        return (
            not gang.non_preemptible, id(pod) in excess, gang_sort_key(gang), part.role.name, pod.index,
        )  # fmt: skip

    total, over = [0, 0, 0], []
    for placed_pod in sorted(placed, key=sort_key):
        requested = _pod_amounts(placed_pod)
        if any(requested[kind] and total[kind] + requested[kind] > account.quota[kind] for kind in KINDS):
            over.append(placed_pod)
            continue
        for kind in KINDS:
            total[kind] += requested[kind]
    return over


def _pods_over_quota_by_workload(placed: Iterable[PlacedPod]) -> dict[str, PodsOverQuota]:
    result: dict[str, PodsOverQuota] = {}
    for placed_pod in placed:
        name = placed_pod[0].name
        pods, gpu_milli = result.get(name, PodsOverQuota())
        result[name] = PodsOverQuota(pods + 1, gpu_milli + _pod_amounts(placed_pod)[0])
    return result


def _pod_amounts(placed_pod: PlacedPod) -> tuple[int, int, int]:
    _, part, pod = placed_pod
    return pod.milli * len(pod.devices), part.amounts[1], part.amounts[2]
