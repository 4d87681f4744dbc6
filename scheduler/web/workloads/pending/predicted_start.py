"""Prediction on the page of a workload that no scheduling cycle has evaluated yet."""

from collections.abc import Sequence
from dataclasses import dataclass

from berth.server.web.pages import Request
from projects.models import Phase, Workload
from scheduler.reports.explanations.edits import unevaluated_edit_time
from scheduler.web.accepted_prediction import AcceptedPrediction, find_prediction
from scheduler.web.workloads.pending.change_link import LinkedText, link_names, workload_urls


@dataclass(frozen=True, slots=True)
class PredictionWithLinks:
    prediction: AcceptedPrediction
    reason: LinkedText
    victims: Sequence[tuple[str, str]]  # name and URL of each victim


def find_accepted_prediction(request: Request, workload: Workload) -> AcceptedPrediction | None:
    """Return the prediction that the user saw when submitting or editing the workload, or None if a cycle has
    already evaluated the workload.
    """
    if workload.phase != Phase.PENDING or workload.held:
        return None
    prediction = find_prediction(request, workload.pk)
    if prediction is None:
        return None
    is_evaluated = workload.explained_at is not None
    if prediction.is_edit:
        is_evaluated = is_evaluated and unevaluated_edit_time(workload) is None
    return None if is_evaluated else prediction


def link_prediction(request: Request, workload: Workload) -> PredictionWithLinks | None:
    prediction = find_accepted_prediction(request, workload)
    if prediction is None:
        return None
    urls = workload_urls(request.actor, prediction.victims)
    victims = [(name, urls.get(name, "")) for name in prediction.victims]
    return PredictionWithLinks(prediction, link_names(prediction.reason, urls), victims)
