"""Run one cycle (observe, decide, commit) and record its input and duration."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from berth.db.lease import fenced
from berth.server.tracing.spans import span
from scheduler import context
from scheduler.commit import Outcome, commit
from scheduler.deciding import decide_what_can_be
from scheduler.dispatch.meeting import meeting_places
from scheduler.engine.forecast import forecasts
from scheduler.engine.plan import Bundle, Evict, Plan
from scheduler.engine_mark import engine_mark
from scheduler.models import Cycle
from scheduler.observe import Seen, observe
from scheduler.points import point
from scheduler.post import Post
from scheduler.reports.explanations.pool_readiness import told
from scheduler.reports.explanations.writer import Explanations
from scheduler.reports.queues.queue_standings import keep_standings, settle_use
from scheduler.snapshot_codec import Texts
from scheduler.snapshots import packed

QUIET_FOR = timedelta(seconds=60)  # a cycle in which nothing happened is written down this often


@dataclass(slots=True)
class Memory:
    """What one cycle leaves to the next, besides rows."""

    explanations: Explanations = field(default_factory=Explanations)
    texts: Texts = field(default_factory=Texts)  # of what snapshots that are kept consist of
    recorded_at: datetime | None = None
    noted: tuple[str, ...] = ()


@dataclass(slots=True)
class Ran:
    seen: Seen
    plan: Plan
    outcome: Outcome
    record: Cycle
    written: bool = False


def run_cycle(now: datetime, trigger: str, post: Post) -> Ran:
    """Only what stands between a decision and its pods; `write_down` does the rest."""
    with span("scheduler cycle", berth__trigger=trigger[:40]) as told:
        ran = _run(now, trigger, post)
        context.in_cycle(ran.record.pk, told)
        told.tell(berth__workloads=ran.record.workloads, berth__nodes=ran.record.nodes,
                  berth__pending=ran.record.pending, berth__bundles=ran.record.bundles,
                  berth__evictions=ran.outcome.evictions)  # fmt: skip
        return ran


def _run(now: datetime, trigger: str, post: Post) -> Ran:
    began = time.perf_counter()
    with span("observe"):
        seen = observe(now, post.specs, post.known)
    observed = time.perf_counter()
    point("cycle.observed")
    with span("decide"):
        plan = decide_what_can_be(seen.snapshot, post.carried)
    decided = time.perf_counter()
    point("cycle.decided")
    record = Cycle(
        at=now,
        epoch=post.held.epoch,
        trigger=trigger[:40],
        observe_ms=(observed - began) * 1000,
        decide_ms=(decided - observed) * 1000,
        nodes=len(seen.snapshot.nodes),
        workloads=len(seen.snapshot.workloads),
        pending=len(plan.refusals),
        bundles=len(plan.bundles),
        trials=plan.trials,
        engine=engine_mark(),
    )
    with span("commit"):
        outcome = commit(seen, plan, post.held, record, meeting_places(seen, plan, post))
    record.commit_ms = (time.perf_counter() - decided) * 1000
    return Ran(seen, plan, outcome, record)


def write_down(ran: Ran, post: Post, memory: Memory, notes: list[str], *, newest: bool) -> bool:
    """The cycle; of the newest one reasons, standings and use too. True when anything changed."""
    with span("write down") as told:
        happened = _write_down(ran, post, memory, notes, newest=newest)
        context.in_cycle(ran.record.pk, told)
        return happened


def _write_down(ran: Ran, post: Post, memory: Memory, notes: list[str], *, newest: bool) -> bool:
    seen, plan, record = ran.seen, ran.plan, ran.record
    foreseen = forecasts(seen.snapshot, plan) if newest else {}
    with fenced(post.held):
        explained, written = 0, False
        if newest:
            refusals = told(plan.refusals, seen.opening)
            explained = memory.explanations.write(seen, refusals, record.pk, foreseen)
            keep_standings(seen, plan.queues)
            settle_use(seen.at)
        noted = (*plan.notes, *notes)
        happened = bool(plan.bundles or explained or noted != memory.noted)
        due = memory.recorded_at is None or seen.at - memory.recorded_at >= QUIET_FOR
        if happened or due:
            finish(ran, noted)
            written = True
            memory.recorded_at, memory.noted = seen.at, noted
        point("cycle.before_end")
    if written:
        _keep_snapshot(ran, post, memory)
    ran.written = True
    point("cycle.done")
    return happened


def write_failure(now: datetime, trigger: str, post: Post, memory: Memory, notes: Sequence[str]) -> bool:
    """A cycle that came to no decision; once, for as long as the same is wrong."""
    noted = tuple(notes)
    if noted == memory.noted:
        return False
    with fenced(post.held):
        Cycle.objects.create(at=now, epoch=post.held.epoch, trigger=trigger[:40], notes=list(noted[:100]))
    memory.recorded_at, memory.noted = now, noted
    return True


def finish(ran: Ran, notes: Sequence[str]) -> None:
    """In the caller's transaction."""
    record, outcome = ran.record, ran.outcome
    record.applied, record.stale = len(outcome.applied), len(outcome.stale)
    record.evictions = outcome.evictions
    record.plan = {
        "bundles": [_shown(bundle) for bundle in outcome.applied[:500]],
        "stale": [{**_shown(bundle), "why": why} for bundle, why in outcome.stale[:500]],
    }
    record.notes = list(notes[:100])
    record.save()
    context.in_cycle(record.pk)


def _keep_snapshot(ran: Ran, post: Post, memory: Memory) -> None:
    """Packed while nobody waits for it. A crash before costs this cycle's replay, no more."""
    found = packed(ran.seen.snapshot, ran.plan, memory.texts)
    if found is not None:
        with fenced(post.held):
            Cycle.objects.filter(pk=ran.record.pk).update(snapshot=found)


def _shown(bundle: Bundle) -> dict[str, Any]:
    return {
        "kind": str(bundle.kind),
        "workload": bundle.workload,
        "pool": bundle.pool,
        "message": bundle.message,
        "steps": [
            {
                "do": "stop" if isinstance(step, Evict) else "promise" if step.reserved else "place",
                "workload": step.workload,
                "role": step.role,
                "index": step.index,
                "node": step.node,
                "devices": list(step.devices),
            }
            for step in bundle.steps[:200]
        ],
    }
