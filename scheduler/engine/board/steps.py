"""Convert accepted pod moves into the steps of a bundle."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from scheduler.engine.board.gang import BoardRole, Gang
from scheduler.engine.model import Pod
from scheduler.engine.plan import Bundle, Evict, Kind, Place, Step

Key = tuple[str, str, int]  # workload name, role name and replica index


class Move(NamedTuple):
    """Placement or removal of one pod on the board."""

    gang: Gang
    part: BoardRole
    pod: Pod
    node: int
    placed: bool
    starts_now: bool


def move_key(move: Move) -> Key:
    return move.gang.name, move.pod.role, move.pod.index


def to_step(move: Move, reserved: Collection[str]) -> Step:
    pod, name = move.pod, move.gang.name
    if move.placed:
        return Place(name, pod.role, pod.index, pod.node, pod.devices, pod.milli, name in reserved)
    return Evict(name, pod.role, pod.index, pod.node, pod.devices, pod.milli)


def append_bundle(bundles: list[Bundle], bundle: Bundle) -> None:
    """Append a bundle, merging all of a gang's scale-up bundles into one."""
    if bundle.kind is Kind.GROW:
        for at, earlier in enumerate(bundles):
            if earlier.kind is Kind.GROW and earlier.workload == bundle.workload:
                steps, evictions = earlier.steps + bundle.steps, earlier.evictions + bundle.evictions
                bundles[at] = replace(earlier, steps=steps, evictions=evictions)
                return
    bundles.append(bundle)


def rewrite_bundles(
    bundles: Iterable[Bundle],
    withdrawn: Collection[Key],
    replacements: Mapping[Key, Move],
    reserved: Collection[str],
) -> list[Bundle]:
    """Return the bundles without withdrawn placements.

    Moves in `replacements` take the place of withdrawn moves. Workloads in `reserved` receive reservations.
    """
    result = []
    affected = {key[0] for key in withdrawn}.union(reserved)
    for bundle in bundles:
        if affected.isdisjoint([step.workload for step in bundle.steps]):
            result.append(bundle)
            continue
        keyed = (((step.workload, step.role, step.index), step) for step in bundle.steps)
        steps = tuple(
            _rewrite_step(step, replacements.get(key), reserved)
            for key, step in keyed
            if key in replacements or key not in withdrawn
        )
        if steps:
            kind = Kind.RESERVE if bundle.kind is Kind.START and bundle.workload in reserved else bundle.kind
            changed = kind is not bundle.kind or steps != bundle.steps
            result.append(replace(bundle, kind=kind, steps=steps) if changed else bundle)
    return result


def _rewrite_step(step: Step, move: Move | None, reserved: Collection[str]) -> Step:
    if not isinstance(step, Place):
        return step
    is_reserved = step.reserved or step.workload in reserved
    if move is None:
        return step if is_reserved == step.reserved else replace(step, reserved=is_reserved)
    is_reserved, pod = is_reserved or not move.starts_now, move.pod
    return replace(step, node=pod.node, devices=pod.devices, milli=pod.milli, reserved=is_reserved)
