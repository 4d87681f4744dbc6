"""Files of failed pods that their nodes keep for some time."""

import uuid
from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.db.models import F, QuerySet, Window
from django.db.models.functions import RowNumber

from berth.core.errors import NotFound
from berth.core.problems import format_value
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Pod, Workload
from projects.services import announce, audit, events

PODS_MAX = 10  # pods of one workload whose files are kept at the same time


def kept_pods(workload: Workload, now: datetime) -> QuerySet[Pod]:
    """Return the failed pods whose files are kept, the latest run first."""
    rows = Pod.objects.filter(workload=workload, files_until__gt=now).select_related("node__pool")
    return rows.order_by("-run", "rank", "-created_at", "pk")


def find_kept_pod(actor: Actor, workload: Workload, pod: str | None, run: int | None, now: datetime) -> Pod:
    """Return a failed pod whose files are kept: of the latest run and the lowest rank by default.

    `pod` is ROLE-INDEX. Raises NotFound, or Forbidden for users who may not run commands in the pod.
    """
    require(actor, Action.OPERATE, workload)
    chosen = _select(kept_pods(workload, now), pod, run).first()
    if chosen is None:
        raise NotFound(_missing(workload, pod, run))
    return chosen


def release_files(
    *, actor: Actor, workload: Workload, now: datetime, pod: str | None = None, run: int | None = None
) -> int:
    """Let the nodes delete the files of failed pods now. Return the number of pods. Idempotent."""
    require(actor, Action.OPERATE, workload)
    with transaction.atomic():
        rows = _select(kept_pods(workload, now).select_related(None), pod, run)
        released = list(rows.select_for_update())
        if not released:
            return 0
        Pod.objects.filter(pk__in=[each.pk for each in released]).update(files_until=now)
        names = ", ".join(f"{each.role}-{each.index} of run {each.run}" for each in released)
        text = (
            f"Files of the failed {'pod' if len(released) == 1 else 'pods'} {names} deleted by {actor.name}."
        )
        events.record("files_deleted", workload, text, actor=actor.name)
        audit.write_entry(actor, "delete files", workload, after={"pods": names}, project=workload.project)
        announce.workload_changed(workload)
    return len(released)


def release_beyond_limit(workloads: Collection[uuid.UUID], now: datetime) -> None:
    """Let the nodes delete the files of all but the latest PODS_MAX failed pods of each workload."""
    place = Window(RowNumber(), "workload_id", [F("run").desc(), F("rank").asc(), F("created_at").desc()])
    pods = Pod.objects.filter(workload__in=workloads, files_until__gt=now).annotate(place=place)
    surplus = pods.filter(place__gt=PODS_MAX).values("pk")
    Pod.objects.filter(pk__in=surplus).update(files_until=now)


def _select(rows: QuerySet[Pod], pod: str | None, run: int | None) -> QuerySet[Pod]:
    if run is not None:
        rows = rows.filter(run=run)
    if pod is not None:
        role, _, index = pod.rpartition("-")
        is_index = index.isascii() and index.isdigit() and len(index) < 10
        rows = rows.filter(role=role, index=int(index) if is_index else -1)
    return rows


def _missing(workload: Workload, pod: str | None, run: int | None) -> str:
    wanted = "" if pod is None else f" of the pod {format_value(pod)}"
    wanted += "" if run is None else f" in run {run}"
    text = f"No files{wanted} are kept for {workload.name}."
    if not (isinstance(workload.spec, dict) and workload.spec.get("keep_failed_pod")):
        return f"{text} Submit with `keep_failed_pod: 30m` to keep the files of failed pods."
    return f"{text} Only failed pods keep files, for the time in their document's `keep_failed_pod`."
