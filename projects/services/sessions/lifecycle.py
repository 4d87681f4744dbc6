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
from berth.db.bell import ring
from berth.db.wake import wake
from projects.access import Action, require
from projects.acting import Acting
from projects.engine import lifecycle
from projects.models import Phase, Session, Workload
from projects.services import audit, workloads
from projects.services.sessions.leases import BELL
from projects.services.workloads.moves import move

ROLE = "worker"
RESTARTS = 10  # of the whole gang, after a worker that died
GRACE = 30
BOOT = """\
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
            sys.exit(f"Berth's worker program could not be fetched from {address}: {error}")
        time.sleep(1)
with open(place, "wb") as file:
    file.write(data)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [place, os.environ.get("PYTHONPATH")]))
sys.path.insert(0, place)
runpy.run_module("berth.worker", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a session is beside its workload's document. `setup` are bytes of the client's own."""

    address: str
    executor: str
    slots: int
    max_attempts: int
    idle_timeout: int
    python: str
    cloudpickle: str
    setup: bytes = b""


def open_session(
    *, acting: Acting, document: Mapping[str, Any], wanted: Wanted, now: datetime | None = None
) -> Session:
    """A pending workload whose pods will run calls. `document` says name, project, pools, and what one node
    needs under `node`; what the pods run is ours to say."""
    at = now or timezone.now()
    node = {**document.get("node", {}), "name": ROLE}
    whole = {key: value for key, value in document.items() if key != "node"}
    whole |= {
        "kind": "interactive",
        "command": ["python", "-c", BOOT],
        "roles": [node],
        "grace_period_seconds": GRACE,
        "restart_policy": {"kind": "on_failure", "max_restarts": RESTARTS},
    }
    with transaction.atomic():
        try:
            workload = workloads.submit(acting=acting, document=whole, now=at)
        except Invalid as error:
            raise Invalid(_as_it_was_asked(problem) for problem in error.problems) from None
        return Session.objects.create(
            workload=workload,
            address=wanted.address,
            executor=wanted.executor,
            slots=wanted.slots,
            max_attempts=wanted.max_attempts,
            idle_timeout=wanted.idle_timeout,
            python=wanted.python,
            cloudpickle=wanted.cloudpickle,
            setup=wanted.setup,
            seen_at=at,
        )


def end_session(*, acting: Acting, session: Session, now: datetime | None = None) -> Workload:
    """It has done what it was for: what runs is stopped and counts as completed. Again: no change."""
    workload = session.workload
    require(acting, Action.OPERATE, workload)
    with transaction.atomic():
        locked = _locked(workload)
        if locked.phase in (Phase.STARTING, Phase.RUNNING):
            _stop(locked, Phase.COMPLETED, "SessionEnded", f"Ended by {acting.name}.", acting.name, now)
            audit.write_down(acting, "end_session", locked, before={"phase": locked.phase},
                             project=locked.project)  # fmt: skip
        elif locked.phase not in lifecycle.ENDED and locked.next_phase not in lifecycle.ENDED:
            workloads.cancel(acting=acting, workload=locked, now=now)
        ring(BELL, [str(session.pk)])
    return _locked_free(workload)


def end_by_fault(session: Session, fault: str, now: datetime | None = None) -> None:
    """No function can run in it: it fails, and says why."""
    with transaction.atomic():
        Session.objects.filter(pk=session.pk, fault="").update(fault=fault)
        locked = _locked(session.workload)
        if locked.phase in (Phase.STARTING, Phase.RUNNING):
            _stop(locked, Phase.FAILED, "SessionFault", fault, "session", now)
        ring(BELL, [str(session.pk)])


def session_of(acting: Acting, workload: Workload, action: Action = Action.OPERATE) -> Session:
    """Who may act on the workload may use the session. Raises Conflict where the workload has none."""
    require(acting, action, workload)
    found = Session.objects.filter(pk=workload.pk).select_related("workload__project__department").first()
    if found is None:
        raise Conflict(f"{workload.name} is no session: it runs a command of its own.")
    return found


def _stop(locked: Workload, leads_to: str, reason: str, said: str, actor: str, now: datetime | None) -> None:
    moved = move(
        locked, expected=[locked.phase], to=Phase.STOPPING, next_phase=leads_to, reason=reason,
        message=said[:1000], actor=actor, now=now or timezone.now(),
    )  # fmt: skip
    assert moved, "the row is locked"
    wake("scheduler")


def _locked(workload: Workload) -> Workload:
    rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
    return rows.get(pk=workload.pk)


def _locked_free(workload: Workload) -> Workload:
    return Workload.objects.select_related("project__department", "submitted_by", "pool").get(pk=workload.pk)


def _as_it_was_asked(problem: Problem) -> Problem:
    path = re.sub(r"^roles\[0\]\.?", "node.", problem.path).rstrip(".")
    return Problem(path, problem.message, problem.received, problem.allowed)
