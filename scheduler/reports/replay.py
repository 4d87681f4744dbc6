"""Replay a stored cycle and compare its plan with the stored plan."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from berth.core.errors import Conflict
from berth.core.wording.words import format_count
from scheduler.loop.decide import decide_pools
from scheduler.loop.engine_version import engine_version
from scheduler.loop.snapshot_codec import UnreadableSnapshot
from scheduler.loop.snapshots import load_snapshot, plan_document
from scheduler.models import Cycle

MAX_DIFFERENCES = 200
NO_SNAPSHOT = "The snapshot of this cycle is not stored. Choose a more recent cycle."
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Result of a replay.

    `differing` is the total number of differences, and `differences` lists the first of them.
    """

    cycle: int
    identical: bool
    recorded_engine_version: str
    engine_version: str
    bundles: int
    pending: int
    differing: int
    differences: list[str]

    @property
    def summary(self) -> str:
        then, now = self.recorded_engine_version or "an unknown version", self.engine_version
        engine = "with the same engine version" if then == now else f"with engine {now} instead of {then}"
        result = f"{format_count(self.bundles, 'bundle')}, {self.pending} pending"
        if self.identical:
            return f"Replay of cycle {self.cycle} gives the same plan ({result}), {engine}."
        return f"Replay of cycle {self.cycle} differs in {format_count(self.differing, 'place')}, {engine}."


def replay(cycle: Cycle) -> ReplayResult:
    """Repeat a cycle's decision from its snapshot and compare the two plans.

    Raises Conflict if the snapshot is missing or unreadable.
    """
    try:
        stored = load_snapshot(cycle)
    except UnreadableSnapshot as error:
        raise Conflict(
            f"This engine version cannot read the cycle's snapshot: {error}. Choose a more recent cycle."
        ) from None
    if stored is None:
        raise Conflict(NO_SNAPSHOT)
    replayed_plan = plan_document(decide_pools(stored.snapshot))
    differences = list(_plan_differences(stored.plan, replayed_plan))
    return ReplayResult(
        cycle=cycle.pk,
        identical=not differences,
        recorded_engine_version=cycle.engine,
        engine_version=engine_version(),
        bundles=len(replayed_plan["bundles"]),
        pending=len(replayed_plan["pending"]),
        differing=len(differences),
        differences=differences[:MAX_DIFFERENCES],
    )


def _plan_differences(then: Document, now: Document) -> Iterator[str]:
    yield from _bundle_differences(then["bundles"], now["bundles"])
    for name in sorted(then["pending"].keys() | now["pending"].keys()):
        was, is_now = then["pending"].get(name), now["pending"].get(name)
        if was != is_now:
            yield f"{name}: then {_describe_entry(was)}; now {_describe_entry(is_now)}"
    for queue in sorted(then["shares"].keys() | now["shares"].keys()):
        was, is_now = then["shares"].get(queue), now["shares"].get(queue)
        if was != is_now:
            yield f"fair share of {queue}: then {was}; now {is_now}"


def _bundle_differences(then: list[Document], now: list[Document]) -> Iterator[str]:
    """Describe each bundle that only one of the plans contains.

    If both contain the same bundles, report whether their order differs.
    """
    left = list(now)
    for bundle in then:
        if bundle in left:
            left.remove(bundle)
        else:
            yield f"then only: {_describe_bundle(bundle)}"
    for bundle in left:
        yield f"now only: {_describe_bundle(bundle)}"
    if then != now and sorted(map(str, then)) == sorted(map(str, now)):
        yield "the same bundles in a different order"


def _describe_bundle(bundle: Document) -> str:
    places = ", ".join(f"{what} {who} {role}-{index} on {node}" for what, who, role, index, node, *_ in
                       bundle["steps"][:6])  # fmt: skip
    more = len(bundle["steps"]) - 6
    tail = f" and {format_count(more, 'more step')}" if more > 0 else ""
    return f"{bundle['kind']} for {bundle['workload']} on {bundle['pool']}: {places}{tail}"


def _describe_entry(entry: list[Any] | None) -> str:
    if entry is None:
        return "is not pending"
    position, *reasons = entry
    where = "is unschedulable" if position is None else f"has queue position {position}"
    return f"{where} ({', '.join(reasons)})"
