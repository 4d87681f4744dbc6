"""Open and end Python sessions."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem
from berth.db.loops.wake import wake
from berth.db.loops.wakeups import notify
from projects.access import Action, require
from projects.actor import Actor
from projects.engine import lifecycle
from projects.models import Phase, Session, Workload
from projects.services import audit, workloads
from projects.services.sessions.leases import CHANNEL
from projects.services.workloads.phase_transitions import change_phase

ROLE = "worker"
MAX_RESTARTS = 10  # maximum restarts of the whole gang after workers have failed
GRACE_SECONDS = 30
BOOT_SCRIPT = """\
import os, runpy, sys, time, urllib.request
place = os.path.join(os.environ["BERTH_POD_DIR"], "berth-worker.zip")
address = os.environ["BERTH_URL"] + "/api/v1/workers/program.zip"
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for left in reversed(range(60)):
    try:
        data = direct.open(address, timeout=30).read()
        break
    except OSError as error:
        if not left:
            sys.exit(f"could not fetch the worker program from {address}: {error}")
        time.sleep(1)
with open(place, "wb") as file:
    file.write(data)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [place, os.environ.get("PYTHONPATH")]))
sys.path.insert(0, place)
runpy.run_module("berth.worker", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Session settings that are not in the workload document. `setup` is opaque to the server."""

    address: str
    executor: str
    slots: int
    max_attempts: int
    idle_timeout: int
    python: str
    cloudpickle: str
    setup: bytes = b""


def open_session(
    *,
    actor: Actor,
    document: Mapping[str, Any],
    settings: SessionSettings,
    now: datetime | None = None,
) -> Session:
    """Open a session by submitting a workload whose pods run calls.

    `document` contains the name, the project, the pools and, under `node`, the resources per node.
    """
    at = now or timezone.now()
    node = {**document.get("node", {}), "name": ROLE}
    full_document = {key: value for key, value in document.items() if key != "node"}
    full_document |= {
        "kind": "interactive",
        "command": ["python", "-c", BOOT_SCRIPT],
        "roles": [node],
        "grace_period_seconds": GRACE_SECONDS,
        "restart_policy": {"kind": "on_failure", "max_restarts": MAX_RESTARTS},
    }
    with transaction.atomic():
        try:
            workload = workloads.submit(actor=actor, document=full_document, now=at)
        except Invalid as error:
            raise Invalid(_to_request_path(problem) for problem in error.problems) from None
        return Session.objects.create(
            workload=workload,
            address=settings.address,
            executor=settings.executor,
            slots=settings.slots,
            max_attempts=settings.max_attempts,
            idle_timeout=settings.idle_timeout,
            python=settings.python,
            cloudpickle=settings.cloudpickle,
            setup=settings.setup,
            seen_at=at,
        )


def end_session(*, actor: Actor, session: Session, now: datetime | None = None) -> Workload:
    """End a session: stop its pods and complete its workload. Idempotent."""
    workload = session.workload
    require(actor, Action.OPERATE, workload)
    with transaction.atomic():
        locked = _lock_workload(workload)
        if locked.phase in (Phase.STARTING, Phase.RUNNING):
            _stop_session(locked, Phase.COMPLETED, "SessionEnded", f"Ended by {actor.name}.", actor.name, now)
            audit.write_entry(actor, "end_session", locked, before={"phase": locked.phase},
                             project=locked.project)  # fmt: skip
        elif locked.phase not in lifecycle.ENDED and locked.next_phase not in lifecycle.ENDED:
            workloads.cancel(actor=actor, workload=locked, now=now)
        notify(CHANNEL, [str(session.pk)])
    return _reload_session(workload)


def fail_session(session: Session, error: str, now: datetime | None = None) -> None:
    """Mark a session that cannot run functions as failed."""
    with transaction.atomic():
        Session.objects.filter(pk=session.pk, error="").update(error=error)
        locked = _lock_workload(session.workload)
        if locked.phase in (Phase.STARTING, Phase.RUNNING):
            _stop_session(locked, Phase.FAILED, "SessionFault", error, "session", now)
        notify(CHANNEL, [str(session.pk)])


def get_session(actor: Actor, workload: Workload, action: Action = Action.OPERATE) -> Session:
    """Return a workload's session.

    Raises NotFound or Forbidden. Raises Conflict if the workload has no session.
    """
    require(actor, action, workload)
    session = Session.objects.filter(pk=workload.pk).select_related("workload__project__department").first()
    if session is None:
        raise Conflict(f"Workload {workload.name} is not a session, because it runs its own command.")
    return session


def _stop_session(
    locked: Workload, next_phase: str, reason: str, message: str, actor: str, now: datetime | None
) -> None:
    moved = change_phase(
        locked, expected=[locked.phase], to=Phase.STOPPING, next_phase=next_phase, reason=reason,
        message=message[:1000], actor=actor, now=now or timezone.now(),
    )  # fmt: skip
    assert moved, "the phase of a locked workload cannot change"
    wake("scheduler")


def _lock_workload(workload: Workload) -> Workload:
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    return rows.get(pk=workload.pk)


def _reload_session(workload: Workload) -> Workload:
    return Workload.objects.select_related("project__department", "submitted_by", "pool").get(pk=workload.pk)


def _to_request_path(problem: Problem) -> Problem:
    path = re.sub(r"^roles\[0\]\.?", "node.", problem.path).rstrip(".")
    return Problem(path, problem.message, problem.received, problem.allowed)
