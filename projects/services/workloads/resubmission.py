"""Submit the document of an ended workload again, as a new workload with the next free name."""

from django.db import transaction

from berth.core.errors import Conflict
from projects.access import Action, require
from projects.actor import Actor
from projects.models import InferenceEngine, Session, Workload
from projects.models.workloads import ENDED_PHASES
from projects.services import announce, events
from projects.services.workloads.names import next_free_name
from projects.services.workloads.submission import NameInUse, Submission, submit_with_warnings

RESUBMITTED_EVENT = "resubmitted"  # kind of the event of the ended workload
MAX_ATTEMPTS = 5  # maximum attempts; one fails if a concurrent submission takes the name


def resubmit(*, actor: Actor, workload: Workload) -> Submission:
    """Submit the document of an ended workload again, to the same project under the next free name.

    Raises Conflict if the workload has not ended or cannot be submitted separately, and the errors of
    `submit_with_warnings`.
    """
    require(actor, Action.SUBMIT, workload.project)
    if obstacle := resubmission_obstacle(workload):
        raise Conflict(obstacle)
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return _submit_copy(actor, workload)
        except NameInUse:
            continue
    return _submit_copy(actor, workload)


def resubmission_obstacle(workload: Workload) -> str:
    """Return why a workload cannot be resubmitted, or an empty string if it can."""
    if workload.array_id is not None:
        return f"This workload is a task of an array. Run `berth retry {workload.name}`."
    if workload.phase not in ENDED_PHASES:
        return f"This workload has not ended ({workload.phase}). Cancel it first, or submit a copy."
    if Session.objects.filter(workload=workload).exists():
        return "This workload belongs to a Python session. Open a new session."
    if InferenceEngine.objects.filter(workload=workload).exists():
        return "This workload is an engine of a service, which starts its engines itself."
    return ""


def _submit_copy(actor: Actor, workload: Workload) -> Submission:
    name = next_free_name(workload.project, workload.name)
    document = {**workload.spec, "name": name}
    with transaction.atomic():  # a conflict undoes all changes
        submission = submit_with_warnings(
            actor=actor, document=document, project=workload.project, resubmitted_from=workload.name
        )
        new = submission.workload
        message, data = f"Resubmitted as {new.name} by {actor.name}.", {"resubmitted_as": str(new.pk)}
        events.record(RESUBMITTED_EVENT, workload, message, actor=actor.name, data=data)
        announce.workload_changed(workload)
        return submission
