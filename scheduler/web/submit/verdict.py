"""Verdict on a workload before its submission: what would happen, and the main reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth.core.words import format_count
from projects.services.workloads.prediction import Prediction
from scheduler.engine.plan import Reason
from scheduler.reports.evictions.predicted import MOVED, SCALED_DOWN
from scheduler.web.workloads.details import Obstacle, obstacles, split_obstacles

SCALES_UP = str(Reason.WAITING_FOR_SCALE_UP)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Title and tone of a prediction, the sentence for screen readers, and the reasons.

    `decisive` is the main reason that the workload would not start now. The `others` are collapsed.
    """

    title: str
    tone: str
    sentence: str
    decisive: Obstacle | None = None
    others: Sequence[Obstacle] = ()


def build_verdict(prediction: Prediction) -> Verdict:
    reasons = obstacles(prediction.blockers)
    decisive, others = split_obstacles(reasons)
    message = "" if decisive is None else f" {decisive.message}"
    match prediction.outcome:
        case "would_start":
            return Verdict("Would start immediately", "good", "The workload would start immediately.")
        case "would_evict":
            effects = _effects(prediction.evictions)
            return Verdict(f"Would start and {effects}", "warn", f"The workload would start and {effects}.")
        case "unschedulable":
            sentence = f"The workload can never start as specified.{message}"
            title = "Can never start as specified"
            return Verdict(title, "bad", sentence, decisive, others)
    if prediction.nodes_to_boot:
        return _scale_up_verdict(prediction, reasons)
    sentence = f"The workload would be queued.{message}"
    if prediction.decisions:
        return Verdict("Would be reserved resources", "info", sentence, decisive, others)
    return Verdict("Would be queued", "warn", sentence, decisive, others)


def _effects(evictions: Sequence[Mapping[str, Any]]) -> str:
    """Return the effects on other workloads, such as "evict 2 workloads, scale down 1 workload"."""
    victims: dict[str, set[str]] = {"evict": set(), "scale down": set(), "move": set()}
    for each in evictions:
        verb = {MOVED: "move", SCALED_DOWN: "scale down"}.get(each["kind"], "evict")
        victims[verb].add(each["victim"])
    counts = {verb: format_count(len(names), "other workload") for verb, names in victims.items() if names}
    return ", ".join(f"{verb} {count}" for verb, count in counts.items()) or "evict other workloads"


def _scale_up_verdict(prediction: Prediction, reasons: Sequence[Obstacle]) -> Verdict:
    """Return the verdict for a workload that only needs more nodes. Its other reasons end when they boot."""
    verb = "has" if prediction.nodes_to_boot == 1 else "have"
    start = f"start after {format_count(prediction.nodes_to_boot, 'node')} {verb} booted"
    decisive = next((obstacle for obstacle in reasons if obstacle.reason == SCALES_UP), None)
    return Verdict(f"Would {start}", "info", f"The workload would {start}.", decisive)
