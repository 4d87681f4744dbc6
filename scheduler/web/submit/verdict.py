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
    victims: str = ""  # numbers of evicted, scaled down and moved workloads, such as "Evicts 2 workloads"

    @property
    def short_title(self) -> str:
        """Title without the effects on other workloads, for the bar of phones."""
        return self.title.partition(" and ")[0]

    @property
    def short_reason(self) -> str:
        """Effects or the main reason in a few words, for the bar of phones."""
        queued = f"{self.queued:,} queued" if self.queued else ""
        if counts := ", ".join(filter(None, (self.victims, queued))):
            return counts
        return token_to_words(self.decisive.reason) if self.decisive else self.effects.removesuffix(".")

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
    starting, tasks = array.would_start + array.would_evict, format_count(array.tasks, "task")
    subject = f"{starting:,} of {tasks}" if array.would_queue else f"All {tasks}"
    effects = f"and {_describe_effects(array.evictions)}" if array.would_evict else "immediately"
    title = f"{subject} would start {effects}"
    tone = "warn" if array.would_evict else "good" if not array.would_queue else "info"
    return Verdict(
        title, tone, decisive, others, array.would_queue, _sum_evictions(array.evictions),
        _count_effects(array.evictions) if array.would_evict else "",
    )  # fmt: skip


def _workload_verdict(prediction: Prediction, urls: Mapping[str, str] | None) -> Verdict:
    reasons = build_obstacles(prediction.blockers, urls)
    decisive, others = split_obstacles(reasons)
    match prediction.outcome:
        case "would_start":
            return Verdict("Would start immediately", "good", effects=NO_EVICTION)
        case "would_evict":
            title = f"Would start and {_describe_effects(prediction.evictions)}"
            effects, victims = _sum_evictions(prediction.evictions), _count_effects(prediction.evictions)
            return Verdict(title, "warn", effects=effects, victims=victims)
        case "unschedulable":
            return Verdict("Can never start as specified", "bad", decisive, others)
    if prediction.nodes_to_boot:
        return _scale_up_verdict(prediction, reasons)
    if prediction.decisions:
        return Verdict("Would have resources reserved", "info", decisive, others)
    return Verdict(QUEUED, "warn", decisive, others)


def _describe_effects(evictions: Sequence[Mapping[str, Any]]) -> str:
    """Return text such as "evict 2 other workloads, scale down 1 other workload"."""
    texts = [f"{verb} {format_count(count, 'other workload')}" for verb, count in _victims_by_verb(evictions)]
    return ", ".join(texts) or "evict other workloads"


def _count_effects(evictions: Sequence[Mapping[str, Any]]) -> str:
    """Return text such as "Evicts 2 workloads, scales down 1"."""
    texts = [
        f"{verb.replace(' ', 's ') if ' ' in verb else f'{verb}s'} {count:,}"
        for verb, count in _victims_by_verb(evictions)
    ]
    if not texts:
        return "Evicts other workloads"
    first, *rest = texts
    noun = "workload" if first.endswith(" 1") else "workloads"
    text = ", ".join((f"{first} {noun}", *rest))
    return text[:1].upper() + text[1:]


def _victims_by_verb(evictions: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    by_verb: dict[str, list[Mapping[str, Any]]] = {"evict": [], "scale down": [], "move": []}
    for each in evictions:
        by_verb[{MOVED: "move", SCALED_DOWN: "scale down"}.get(each["kind"], "evict")].append(each)
    return [(verb, count_victims(group)) for verb, group in by_verb.items() if group]


def _sum_evictions(evictions: Sequence[Mapping[str, Any]]) -> str:
    return f"{build_prediction_table(evictions).summary}." if evictions else NO_EVICTION


def _scale_up_verdict(prediction: Prediction, reasons: Sequence[Obstacle]) -> Verdict:
    """Return the verdict on a workload that only needs more nodes."""
    verb = "has" if prediction.nodes_to_boot == 1 else "have"
    start = f"start after {format_count(prediction.nodes_to_boot, 'node')} {verb} booted"
    decisive = next((obstacle for obstacle in reasons if obstacle.reason == SCALES_UP), None)
    return Verdict(f"Would {start}", "info", decisive)
