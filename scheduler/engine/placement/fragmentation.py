"""Measure the free GPU capacity that typical requests could not use.

Typical requests (the mix) are the requests of all workloads in the pool. The loss on a node consists of the
free devices that are too small or lack CPU or memory. All values are integers, weighted by the number of
replicas. The best placement causes the smallest loss.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from berth.core.values.amounts import MILLI
from scheduler.engine.board.gang import BoardRole
from scheduler.engine.board.nodes import Nodes
from scheduler.engine.board.request_mix import RequestKind, RequestMix
from scheduler.engine.model import Request

Ints = NDArray[np.int64]

MAX_KINDS = 512  # maximum number of request kinds in the mix; those with the fewest GPUs are omitted
LOSS_STEP = MILLI // 5  # losses are rounded to a fifth of a device; node names break ties
BATCH_SIZE = 1024  # number of node states evaluated together
NO_FIT = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class RequestMixRows:
    """Arrays of the request mix. Each row is one kind of GPU request, weighted by its number of replicas."""

    cpu: Ints
    memory: Ints
    devices: Ints
    sizes: Ints  # distinct fractions of one device
    size: Ints  # index of each kind in `sizes`
    matches: NDArray[np.bool_]  # whether each kind of request matches each node
    weights: Ints
    gpus: int  # weighted sum over all kinds, in milli-GPU
    cpus: int
    memories: int


def request_mix_rows(mix: RequestMix, nodes: int) -> RequestMixRows:
    """Return the request mix as arrays, limited to the MAX_KINDS kinds of requests with the most GPUs."""
    replicas = [(kinds, count.replicas) for kinds, count in mix.counts.items()]
    largest = sorted(replicas, key=_gpu_sort_key)[:MAX_KINDS]
    kinds = [request for (request, _, _), _ in largest]
    weights = _to_int_array(count for _, count in largest)
    milli = _to_int_array(share for (_, _, share), _ in largest)
    cpu, memory = _to_int_array(r.limit_cpu for r in kinds), _to_int_array(r.limit_memory_mib for r in kinds)
    devices = _to_int_array(r.devices for r in kinds)
    sizes, size = np.unique(milli, return_inverse=True)
    matches = np.ones((len(largest), nodes), dtype=np.bool_)
    for row, ((_, mask, _), _) in enumerate(largest):
        if mask is not None:
            matches[row] = np.frombuffer(mask, dtype=np.uint8) > 0
    return RequestMixRows(
        cpu, memory, devices, sizes, size.astype(np.int64), matches, weights,
        int((weights * milli * devices).sum()), int((weights * cpu).sum()), int((weights * memory).sum()),
    )  # fmt: skip


def _gpu_sort_key(entry: tuple[RequestKind, int]) -> tuple[int, str, bytes]:
    (request, mask, milli), count = entry
    return -milli * request.devices * count, repr(request), mask or b""


def _to_int_array(values: Iterable[int]) -> Ints:
    return np.fromiter(values, dtype=np.int64)


@dataclass(slots=True)
class _KindLosses:
    """Losses for one kind of request: the fragmentation that one more replica would cause on each node, and
    the best device on that node.
    """

    losses: Ints
    device: Ints
    counted: int  # number of node changes already processed


@dataclass(frozen=True, slots=True)
class _NodeStates:
    """Nodes in their current or a hypothetical state. The same node may appear in several states."""

    node: Ints
    cpu: Ints
    memory: Ints
    free: Ints  # free milli-GPU per state and device


class Fragmentation:
    """Free GPU capacity lost to fragmentation on each node of a pool.

    Node changes take effect at the next query.
    """

    def __init__(self, nodes: Nodes, mix: RequestMix) -> None:
        self._nodes, count = nodes, len(nodes.nodes)
        self._mix = request_mix_rows(mix, count)
        self._width = max((len(free) for free in nodes.devices), default=0)
        self._cpu, self._memory = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._free = np.zeros((count, self._width), np.int64)
        self._losses = np.zeros(count, np.int64)
        self._open = np.fromiter(
            (r or b for r, b in zip(nodes.ready, nodes.booting, strict=True)), np.bool_, count
        )
        self._has_devices = np.fromiter((len(free) > 0 for free in nodes.devices), np.bool_, count)
        self._kinds: dict[Hashable, _KindLosses] = {}
        self._touched: list[int] = []
        nodes.touched = self._touched
        self._seen = 0
        self._update_losses(np.arange(count))

    def nodes_best_first(self, part: BoardRole, among: Iterable[int] | None) -> Iterator[tuple[int, int]]:
        """Yield (node, device) for nodes with room for a replica, best first.

        `device` is the device to share, or -1.
        """
        kind = self._current_losses(part)
        losses = kind.losses
        if among is not None:
            chosen = _to_int_array(sorted(among))
        elif not len(losses) or losses[first := int(losses.argmin())] == NO_FIT:
            return
        else:
            yield first, int(kind.device[first])  # most callers use only the first node
            chosen = np.arange(len(losses))
        for i in chosen[np.argsort(losses[chosen], kind="stable")]:
            if losses[i] == NO_FIT:
                return
            yield int(i), int(kind.device[i])

    def _current_losses(self, part: BoardRole) -> _KindLosses:
        self._apply_changes()
        key = (part.request, part.mask, part.ignores_limits)
        kind = self._kinds.get(key)
        count = len(self._nodes.nodes)
        if kind is None:
            kind = self._kinds[key] = _KindLosses(np.full(count, NO_FIT), np.full(count, -1), 0)
            self._evaluate(kind, part, np.arange(count))
        elif kind.counted < len(self._touched):
            self._evaluate(kind, part, _to_int_array(sorted(set(self._touched[kind.counted :]))))
        kind.counted = len(self._touched)
        return kind

    def _apply_changes(self) -> None:
        if self._seen < len(self._touched):
            self._update_losses(_to_int_array(sorted(set(self._touched[self._seen :]))))
            self._seen = len(self._touched)

    def _update_losses(self, changed: Ints) -> None:
        nodes = self._nodes
        for i in changed.tolist():
            self._cpu[i], self._memory[i] = nodes.cpu[i], nodes.memory[i]
            free = nodes.devices[i]
            self._free[i, : len(free)] = free[: self._width]
        self._losses[changed] = self._losses_by_state(
            _NodeStates(changed, self._cpu[changed], self._memory[changed], self._free[changed])
        )

    def _evaluate(self, kind: _KindLosses, part: BoardRole, stale: Ints) -> None:
        kind.losses[stale], kind.device[stale] = NO_FIT, -1
        candidates, milli = self._nodes_with_room(part, stale)
        request = part.request
        if not len(candidates):
            return
        if request.devices == 1 and bool((milli < MILLI).any()):
            self._evaluate_shared_devices(kind, request, candidates, milli)
            return
        states = self._node_states_after_placement(
            request,
            candidates,
            _milli_used_on_tightest_devices(self._free[candidates], milli, request.devices),
        )
        kind.losses[candidates] = self._added_losses(states)
        if not request.devices:
            # Among equal nodes, prefer one without GPUs.
            kind.losses[candidates] += self._has_devices[candidates]

    def _nodes_with_room(self, part: BoardRole, stale: Ints) -> tuple[Ints, Ints]:
        """Return the nodes in `stale` with room for a replica, and the device fraction that it would use on
        each.

        Fractions are in thousandths.
        """
        nodes, request = self._nodes, part.request
        fits = self._open[stale].copy()
        if not part.ignores_limits:
            fits &= (self._cpu[stale] >= request.limit_cpu) & (
                self._memory[stale] >= request.limit_memory_mib
            )
        if part.mask is not None:
            fits &= np.frombuffer(part.mask, dtype=np.uint8)[stale] > 0
        if request.gpu_memory_mib:
            milli = _to_int_array(nodes.device_share_milli(i, request) for i in stale.tolist())
        else:
            milli = np.full(len(stale), request.gpu)
        if request.devices:
            fits &= (self._free[stale] >= milli[:, None]).sum(axis=1) >= request.devices
        return stale[fits], milli[fits]

    def _evaluate_shared_devices(
        self, kind: _KindLosses, request: Request, candidates: Ints, milli: Ints
    ) -> None:
        """Evaluate the devices that have room for the request.

        If devices of a node have the same free capacity, only one of them is evaluated.
        """
        free = self._free[candidates]
        best, which = np.full(len(candidates), NO_FIT), np.full(len(candidates), -1)
        for device in range(self._width):
            free_here = free[:, device]
            new = (free_here >= milli) & ~(free[:, :device] == free_here[:, None]).any(axis=1)
            rows = np.flatnonzero(new)
            if not len(rows):
                continue
            used = np.zeros((len(rows), self._width), np.int64)
            used[:, device] = milli[rows]
            scores = self._added_losses(self._node_states_after_placement(request, candidates[rows], used))
            better = scores < best[rows]
            best[rows[better]], which[rows[better]] = scores[better], device
        kind.losses[candidates], kind.device[candidates] = best, which

    def _node_states_after_placement(self, request: Request, candidates: Ints, used: Ints) -> _NodeStates:
        return _NodeStates(
            candidates,
            self._cpu[candidates] - request.limit_cpu,
            self._memory[candidates] - request.limit_memory_mib,
            self._free[candidates] - used,
        )

    def _added_losses(self, after: _NodeStates) -> Ints:
        """Return the loss that each node state would add, in fifths of a device per replica of the mix."""
        divisor = max(1, int(self._mix.weights.sum())) * LOSS_STEP
        return (self._losses_by_state(after) - self._losses[after.node]) // divisor

    def _losses_by_state(self, states: _NodeStates) -> Ints:
        parts = [
            self._batch_losses(
                _NodeStates(states.node[a:b], states.cpu[a:b], states.memory[a:b], states.free[a:b])
            )
            for a, b in ((a, a + BATCH_SIZE) for a in range(0, len(states.node), BATCH_SIZE))
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _batch_losses(self, states: _NodeStates) -> Ints:
        mix, free, total = self._mix, states.free, states.free.sum(axis=1)
        large = free[:, None, :] >= mix.sizes[None, :, None]
        number = large.sum(axis=2)
        too_small = total[:, None] - np.where(large, free[:, None, :], 0).sum(axis=2)
        fits = number[:, mix.size] >= mix.devices
        fits &= (states.cpu[:, None] >= mix.cpu) & (states.memory[:, None] >= mix.memory)
        fits &= mix.matches[:, states.node].T
        unusable = np.where(fits, too_small[:, mix.size], total[:, None]) @ mix.weights
        usable = total
        for left, kinds in ((states.cpu, mix.cpus), (states.memory, mix.memories)):
            if kinds:
                usable = np.minimum(usable, np.maximum(left, 0) * mix.gpus // kinds)
        return np.asarray(unusable + (total - usable) * int(mix.weights.sum()))


def _milli_used_on_tightest_devices(free: Ints, milli: Ints, count: int) -> Ints:
    """Return how many milli-GPU a replica would use on each device.

    The replica uses the `count` fullest devices on which it fits.
    """
    used = np.zeros_like(free)
    if count:
        order = np.argsort(np.where(free >= milli[:, None], free, NO_FIT), axis=1, kind="stable")[:, :count]
        np.put_along_axis(used, order, np.broadcast_to(milli[:, None], order.shape), axis=1)
    return used
