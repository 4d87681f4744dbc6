"""Prediction that a user saw when submitting or editing a workload.

The prediction is shown until a cycle has evaluated the workload.
"""

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core import signing
from django.http import HttpResponse

from berth.core.errors import BerthError, RateLimited
from berth.server.web.pages import Request, page
from scheduler.web.workloads.pending.change_link import LinkedText, link_names, workload_urls

SALT, SESSION_KEY = "berth.accepted-prediction", "accepted_predictions"
VALID_FOR, STORED_MAX = timedelta(hours=1), 5
NO_PREDICTION = (
    "The outcome could not be predicted, because too many predictions are in progress. "
    "The workload may evict other workloads."
)


@dataclass(frozen=True, slots=True)
class AcceptedPrediction:
    """Outcome that the page predicted. `at` and `start` are in ISO format; `start` may be empty."""

    title: str
    reason: str
    nodes: list[str]
    victims: list[str]  # names of the workloads that would be evicted
    start: str
    at: str
    is_edit: bool

    @property
    def evicts(self) -> bool:
        return " evict " in self.title

    @property
    def predicted_at(self) -> datetime:
        return datetime.fromisoformat(self.at)

    @property
    def expected_start(self) -> datetime | None:
        return datetime.fromisoformat(self.start) if self.start else None


def sign_prediction(request: Request, prediction: AcceptedPrediction, document: Mapping[str, Any]) -> str:
    """Sign the prediction, and return it as a message that is valid only for the same user and document."""
    content = [request.user.pk, _digest(document), asdict(prediction)]
    return signing.dumps(content, salt=SALT, compress=True)


def read_prediction(request: Request, document: Mapping[str, Any]) -> AcceptedPrediction | None:
    """Return the prediction that was sent with the document, or None if it is for another document."""
    try:
        content = signing.loads(request.POST.get("predicted", ""), salt=SALT, max_age=VALID_FOR)
    except signing.BadSignature:
        return None
    is_valid = content[:2] == [request.user.pk, _digest(document)]
    return AcceptedPrediction(**content[2]) if is_valid else None


def store_prediction(request: Request, workload_id: uuid.UUID, document: Mapping[str, Any]) -> None:
    """Replace the workload's stored prediction with the one that was sent with the document."""
    replace_stored_prediction(request, workload_id, read_prediction(request, document))


def replace_stored_prediction(
    request: Request, workload_id: uuid.UUID, prediction: AcceptedPrediction | None
) -> None:
    """Replace the workload's stored prediction, or remove it if there is no new one."""
    stored = {key: value for key, value in _stored_predictions(request).items() if key != str(workload_id)}
    if prediction is not None:
        recent = list(stored.items())[1 - STORED_MAX :]
        request.session[SESSION_KEY] = dict(recent) | {str(workload_id): asdict(prediction)}
    elif len(stored) < len(_stored_predictions(request)):
        request.session[SESSION_KEY] = stored


def ask_before_evicting(
    request: Request,
    document: Mapping[str, Any],
    predict: Callable[[], AcceptedPrediction | None],
    *,
    form_action: str,
    verb: str,
    target: str = "#answer",
    note: str = "",
) -> HttpResponse | None:
    """Return a dialog that asks whether to evict the predicted victims, or None if there is nothing to ask.

    If the user confirms, the dialog submits `form_action`, and the response replaces the element `target`.
    `predict` is called only if the form contains no valid prediction. `note` states other effects.
    """
    if not request.htmx:
        return None
    victims, label = list[str](), f"{verb} without prediction"
    effects: LinkedText = [(NO_PREDICTION, "")]
    try:
        prediction = read_prediction(request, document) or predict()
    except RateLimited:
        pass
    except BerthError:
        return None
    else:
        if prediction is None or not prediction.evicts:
            return None
        victims, label = prediction.victims, f"{verb} and evict"
        effects = link_names(prediction.reason, workload_urls(request.actor, victims))
    context = {
        "label": label, "form_action": form_action, "post_to": request.path, "target": target,
        "effects": effects, "victims": victims, "note": note,
    }  # fmt: skip
    response = page(request, "scheduler/submit/evict_question.html", context)
    response.headers["HX-Retarget"], response.headers["HX-Reswap"] = "#dialog", "innerHTML"
    return response


def find_prediction(request: Request, workload_id: uuid.UUID) -> AcceptedPrediction | None:
    stored = _stored_predictions(request).get(str(workload_id))
    return AcceptedPrediction(**stored) if stored else None


def _stored_predictions(request: Request) -> dict[str, Any]:
    return dict(request.session.get(SESSION_KEY, {}))


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()
