"""Verdict on a workload before its submission: what would happen, and which reason decides."""

from collections.abc import Sequence
from dataclasses import dataclass

from berth.core.words import format_count
from projects.services.workloads.prediction import Prediction
from scheduler.engine.plan import Reason
from scheduler.web.workloads.details import Obstacle, obstacles, split_obstacles

SCALES_UP = str(Reason.WAITING_FOR_SCALE_UP)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Title and chip of a prediction, the sentence for screen readers, and the reasons.

    `decisive` is the main reason that the workload would not start now. The `others` are folded.
    """

    title: str
    chip: str
    tone: str
    sentence: str
    decisive: Obstacle | None = None
    others: Sequence[Obstacle] = ()


def build_verdict(prediction: Prediction) -> Verdict:
    reasons = obstacles(prediction.blockers)
    decisive, others = split_obstacles(reasons)
    message = "" if decisive is None else f" {decisive.message}"
    evicted = format_count(len(prediction.evictions), "other workload")
    match prediction.outcome:
        case "would_start":
            return Verdict(
                "Would start immediately", "Starts", "good", "The workload would start immediately."
            )
        case "would_evict":
            return Verdict(
                "Would start and evict other workloads",
                "Evicts",
                "warn",
                f"The workload would start and evict {evicted}.",
            )
        case "unschedulable":
            sentence = f"The workload can never start as specified.{message}"
            title = "Can never start as specified"
            return Verdict(title, "Unschedulable", "bad", sentence, decisive, others)
    if prediction.nodes_to_boot:
        return _scale_up_verdict(prediction, reasons)
    sentence = f"The workload would be queued.{message}"
    if prediction.decisions:
        return Verdict("Would be reserved resources", "Reserved", "info", sentence, decisive, others)
    position = f", position {prediction.queue_position}" if prediction.queue_position else ""
    return Verdict("Would be queued", f"Queued{position}", "warn", sentence, decisive, others)


def _scale_up_verdict(prediction: Prediction, reasons: Sequence[Obstacle]) -> Verdict:
    """Return the verdict for a workload that only needs more nodes. Its other reasons end with their boot."""
    verb = "has" if prediction.nodes_to_boot == 1 else "have"
    start = f"start after {format_count(prediction.nodes_to_boot, 'node')} {verb} booted"
    decisive = next((obstacle for obstacle in reasons if obstacle.reason == SCALES_UP), None)
    return Verdict(f"Would {start}", "Scales up", "info", f"The workload would {start}.", decisive)
