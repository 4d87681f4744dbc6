"""Resubmission of a finished workload, with the outcome that was predicted for it."""

import uuid
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from berth.core.errors import BerthError
from berth.server.web.pages import Request, signed_in
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Workload
from projects.selectors import find_workload
from projects.services.workloads import next_free_name, resubmission_obstacle
from projects.services.workloads.prediction import Prediction, dry_run
from projects.web.workloads.resubmission import confirm_resubmission, resubmit_and_open
from scheduler.web.accepted_prediction import (
    AcceptedPrediction,
    ask_before_evicting,
    replace_stored_prediction,
)
from scheduler.web.submit.predicted_outcome import PredictedOutcome

RESUBMIT_EVICTING = "resubmit-evicting"


@dataclass
class Resubmission(PredictedOutcome):
    prediction: Prediction | None


@signed_in
@require_http_methods(["GET", "POST"])
def resubmit(request: Request, workload_id: uuid.UUID) -> HttpResponse:
    """Ask for confirmation (GET), or resubmit the workload (POST).

    Also ask before evicting other workloads.
    """
    workload = find_workload(request.actor, workload_id)
    require(request.actor, Action.SUBMIT, workload.project)
    if request.method == "GET":
        return confirm_resubmission(request, workload)
    predict = cache(partial(_predict, request.actor, workload))
    if request.POST.get("step") != RESUBMIT_EVICTING:
        question = ask_before_evicting(
            request,
            workload.spec,
            predict,
            form_action=RESUBMIT_EVICTING,
            verb="Resubmit",
            target="#dialog",
        )
        if question is not None:
            # The button may be replaced meanwhile, so htmx could not retarget its request.
            if request.htmx.target == "dialog":
                del question.headers["HX-Retarget"]
            return question
    prediction = None
    with suppress(BerthError):
        prediction = predict()
    return resubmit_and_open(
        request, workload, on_stored=lambda stored: replace_stored_prediction(request, stored.pk, prediction)
    )


def _predict(actor: Actor, workload: Workload) -> AcceptedPrediction | None:
    """Return the prediction, or None if the document is no longer valid.

    Raises RateLimited if too many dry runs of the project are in progress.
    """
    if resubmission_obstacle(workload):
        return None
    document = {**workload.spec, "name": next_free_name(workload.project, workload.name)}
    return Resubmission(dry_run(actor=actor, document=document)).summarize()
