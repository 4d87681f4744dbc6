"""Verdict on a workload before it is submitted: what would happen, and the main reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from berth.core.wording.words import format_count, token_to_words
from projects.services.workloads.prediction import Prediction, TasksPrediction
from scheduler.engine.plan import Reason
from scheduler.reports.evictions.predicted import (
    MOVED,
    SCALED_DOWN,
    build_prediction_table,
    count_victims,
)
from scheduler.web.workloads.details import Obstacle, build_obstacles, split_obstacles

QUEUED = "Would be queued"
NO_EVICTION = "No workload would be evicted."
SCALES_UP = str(Reason.WAITING_FOR_SCALE_UP)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Title and tone of a prediction, with reasons.

    `decisive` is the main reason why the workload would not start now, and `others` contains further reasons,
    which are collapsed. `effects` is a sentence about evictions, or "".
    """

    title: str
    tone: str
    decisive: Obstacle | None = None
    others: Sequence[Obstacle] = ()
    queued: int = 0  # tasks that would be queued for these reasons while other tasks start
    effects: str = ""

    @property
    def reason(self) -> str:
        """Sentences with the main reason or, if the workload would start, with its effects on other
        workloads.
        """
        if self.decisive is None or self.queued:
            return self.effects
        return f"{token_to_words(self.decisive.reason)}. {self.decisive.message}"


def build_verdict(
    prediction: Prediction, array: TasksPrediction | None = None, urls: Mapping[str, str] | None = None
) -> Verdict:
    """Return the verdict on a workload, or on all of an array's tasks.

    `urls` contains the URLs of the workloads that the reasons name.
    """
    if array is not None and array.tasks > 1 and (array.would_start or array.would_evict):
        return _tasks_verdict(array, urls)
    verdict = _workload_verdict(prediction, urls)
    if array is None or array.tasks == 1 or prediction.outcome != "would_stay_pending":
        return verdict
    tasks, outcome = format_count(array.tasks, "task"), verdict.title[:1].lower() + verdict.title[1:]
    title = f"All {tasks} {outcome}" if verdict.title == QUEUED else f"First of {tasks}: {outcome}"
    return replace(verdict, title=title)


def _tasks_verdict(array: TasksPrediction, urls: Mapping[str, str] | None) -> Verdict:
    """Return the verdict on an array in which at least one task would start."""
    decisive, others = split_obstacles(build_obstacles(array.blockers, urls))
    parts = []
    if array.would_start:
        parts.append((array.would_start, "would start immediately"))
    if array.would_evict:
        parts.append((array.would_evict, f"would start and {_describe_effects(array.evictions)}"))
    if array.would_queue:
        parts.append((array.would_queue, "would be queued"))
    if len(parts) == 1:
        title = f"All {format_count(array.tasks, 'task')} {parts[0][1]}"
    else:
        (count, text), *rest = parts
        title = f"{count:,} of {format_count(array.tasks, 'task')} {text}"
        title += "".join(f", {number:,} {words}" for number, words in rest)
    tone = "warn" if array.would_evict else "good" if not array.would_queue else "info"
    return Verdict(title, tone, decisive, others, array.would_queue, _sum_evictions(array.evictions))


def _workload_verdict(prediction: Prediction, urls: Mapping[str, str] | None) -> Verdict:
    reasons = build_obstacles(prediction.blockers, urls)
    decisive, others = split_obstacles(reasons)
    match prediction.outcome:
        case "would_start":
            return Verdict("Would start immediately", "good", effects=NO_EVICTION)
        case "would_evict":
            title = f"Would start and {_describe_effects(prediction.evictions)}"
            return Verdict(title, "warn", effects=_sum_evictions(prediction.evictions))
        case "unschedulable":
            return Verdict("Can never start as specified", "bad", decisive, others)
    if prediction.nodes_to_boot:
        return _scale_up_verdict(prediction, reasons)
    if prediction.decisions:
        return Verdict("Would have resources reserved", "info", decisive, others)
    return Verdict(QUEUED, "warn", decisive, others)


def _describe_effects(evictions: Sequence[Mapping[str, Any]]) -> str:
    """Return text such as "evict 2 other workloads, scale down 1 other workload"."""
    by_verb: dict[str, list[Mapping[str, Any]]] = {"evict": [], "scale down": [], "move": []}
    for each in evictions:
        by_verb[{MOVED: "move", SCALED_DOWN: "scale down"}.get(each["kind"], "evict")].append(each)
    counts = {
        verb: format_count(count_victims(group), "other workload") for verb, group in by_verb.items() if group
    }
    return ", ".join(f"{verb} {count}" for verb, count in counts.items()) or "evict other workloads"


def _sum_evictions(evictions: Sequence[Mapping[str, Any]]) -> str:
    return f"{build_prediction_table(evictions).summary}." if evictions else NO_EVICTION


def _scale_up_verdict(prediction: Prediction, reasons: Sequence[Obstacle]) -> Verdict:
    """Return the verdict on a workload that only needs more nodes."""
    verb = "has" if prediction.nodes_to_boot == 1 else "have"
    start = f"start after {format_count(prediction.nodes_to_boot, 'node')} {verb} booted"
    decisive = next((obstacle for obstacle in reasons if obstacle.reason == SCALES_UP), None)
    return Verdict(f"Would {start}", "info", decisive)
