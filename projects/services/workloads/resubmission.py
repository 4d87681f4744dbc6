"""Submit the document of an ended workload again, as a new workload with the next free name."""

import re
from collections.abc import Iterable

from django.db import transaction

from berth.core.errors import Conflict
from projects.access import Action, require
from projects.actor import Actor
from projects.models import InferenceEngine, Project, Session, Workload, WorkloadArray
from projects.models.workloads import ENDED_PHASES
from projects.services.workloads.submission import NameInUse, Submission, submit_with_warnings

NAME_MAX = 63
NUMBERED = re.compile(r"(?P<base>.+)-(?P<number>[1-9][0-9]{0,8})")
NAMES_PER_QUERY = 100
MAX_ATTEMPTS = 5  # maximum attempts; one fails if a concurrent submission takes the name


def resubmit(*, actor: Actor, workload: Workload) -> Submission:
    """Submit the document of an ended workload again, to the same project under the next free name.

    Raises Conflict if the workload has not ended or if its document cannot be submitted on its own, and the
    errors of `submit_with_warnings` if the document is no longer accepted.
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


def next_free_name(project: Project, name: str) -> str:
    """Return the first numbered name after `name` that the project has not used: `train-2` after `train`.

    The number of `train-2` is increased only if the project has also used `train`. Otherwise the number is
    part of the name: `resnet-50` is followed by `resnet-50-2`.
    """
    base, number = name, 1
    numbered = NUMBERED.fullmatch(name)
    if numbered is not None and _used_names(project, [numbered["base"]]):
        base, number = numbered["base"], int(numbered["number"])
    while True:
        candidates = [_add_number(base, number + step) for step in range(1, NAMES_PER_QUERY + 1)]
        used = _used_names(project, candidates)
        for candidate in candidates:
            if candidate not in used:
                return candidate
        number += NAMES_PER_QUERY


def free_name(project: Project, name: str) -> str:
    """Return `name`, or the next free name if the project has already used it."""
    return next_free_name(project, name) if _used_names(project, [name]) else name


def _submit_copy(actor: Actor, workload: Workload) -> Submission:
    name = next_free_name(workload.project, workload.name)
    document = {**workload.spec, "name": name}
    with transaction.atomic():  # a conflict undoes all changes
        return submit_with_warnings(
            actor=actor, document=document, project=workload.project, resubmitted_from=workload.name
        )


def _add_number(base: str, number: int) -> str:
    suffix = f"-{number}"
    return base[: NAME_MAX - len(suffix)] + suffix


def _used_names(project: Project, names: Iterable[str]) -> set[str]:
    """Return those of `names` that a live or ended workload or array of the project has."""
    models = (Workload, WorkloadArray)
    return {
        name
        for model in models
        for name in model._default_manager.filter(project=project, name__in=names).values_list(
            "name", flat=True
        )
    }
