"""Files of failed pods that nodes store for a limited time."""

from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import Coalesce, RowNumber

from berth.core.errors import NotFound
from berth.core.problems import format_value
from projects.access import Action, require
from projects.actor import Actor
from projects.models import Pod, Workload
from projects.services import announce, audit, events
from projects.services.workloads.control import lock_workload

PODS_MAX = 10  # maximum number of failed pods with retained files, per workload or array


def pods_with_retained_files(workload: Workload, now: datetime) -> QuerySet[Pod]:
    """Return the failed pods whose files are still stored on nodes, latest run first."""
    rows = Pod.objects.filter(workload=workload, files_until__gt=now).select_related("node__pool")
    return rows.order_by("-run", "rank", "-created_at", "pk")


def find_pod_with_retained_files(
    actor: Actor, workload: Workload, pod: str | None, run: int | None, now: datetime
) -> Pod:
    """Return a failed pod whose files are still stored, by default the lowest-ranked pod of the latest run.

    `pod` has the form ROLE-INDEX. Raises NotFound, or Forbidden for users who may not run commands in the
    pod.
    """
    require(actor, Action.OPERATE, workload)
    chosen = _select_pods(pods_with_retained_files(workload, now), pod, run).first()
    if chosen is None:
        raise NotFound(_missing_message(workload, pod, run))
    return chosen


def release_files(
    *, actor: Actor, workload: Workload, now: datetime, pod: str | None = None, run: int | None = None
) -> int:
    """Release the files of failed pods, so that nodes delete them. Return the number of pods. Idempotent."""
    require(actor, Action.OPERATE, workload)
    with transaction.atomic():
        workload = lock_workload(workload)
        released = list(_select_pods(pods_with_retained_files(workload, now).select_related(None), pod, run))
        if not released:
            return 0
        Pod.objects.filter(pk__in=[each.pk for each in released]).update(files_until=now)
        names = ", ".join(f"{each.role}-{each.index} of run {each.run}" for each in released)
        text = (
            f"Files of the failed {'pod' if len(released) == 1 else 'pods'} {names} deleted by {actor.name}."
        )
        events.record("files_deleted", workload, text, actor=actor.name)
        audit.write_entry(actor, "delete_files", workload, after={"pods": names}, project=workload.project)
        announce.workload_changed(workload)
    return len(released)


def record_read(*, actor: Actor, workload: Workload, pod: Pod) -> None:
    """Write an audit entry, without paths, for reading a failed pod's files."""
    after = {"pod": f"{pod.role}-{pod.index}", "run": pod.run}
    with transaction.atomic():
        audit.write_entry(actor, "read_files", workload, after=after, project=workload.project)


def release_excess_files(workloads: Collection[Workload], now: datetime) -> None:
    """Release the files of all but the latest PODS_MAX failed pods of each workload or array.

    The caller must have locked `workloads`. Pods that another transaction has locked are skipped.
    """
    arrays = {each.array_id for each in workloads if each.array_id is not None}
    owned = Q(workload__in=[each.pk for each in workloads]) | Q(workload__array__in=arrays)
    owner = Coalesce("workload__array_id", "workload_id")
    place = Window(RowNumber(), owner, [F("created_at").desc(), F("run").desc(), F("rank").asc()])
    pods = Pod.objects.filter(owned, files_until__gt=now).annotate(place=place)
    surplus = Pod.objects.filter(pk__in=pods.filter(place__gt=PODS_MAX).values("pk"))
    # Waiting for locks on pods could cause a deadlock.
    unlocked = surplus.select_for_update(skip_locked=True)
    Pod.objects.filter(pk__in=unlocked.values("pk")).update(files_until=now)


def _select_pods(rows: QuerySet[Pod], pod: str | None, run: int | None) -> QuerySet[Pod]:
    if run is not None:
        rows = rows.filter(run=run)
    if pod is not None:
        role, _, index = pod.rpartition("-")
        is_index = index.isascii() and index.isdigit() and len(index) < 10
        rows = rows.filter(role=role, index=int(index) if is_index else -1)
    return rows


def _missing_message(workload: Workload, pod: str | None, run: int | None) -> str:
    wanted = "" if pod is None else f" of the pod {format_value(pod)}"
    wanted += "" if run is None else f" in run {run}"
    text = f"No files{wanted} are kept for {workload.name}."
    if not (isinstance(workload.spec, dict) and workload.spec.get("keep_failed_pod")):
        return f"{text} Submit with `keep_failed_pod: 30m` to keep the files of failed pods."
    text += f" Only the latest {PODS_MAX} failed pods of a workload or array keep files"
    return f"{text}, for the time in their document's `keep_failed_pod`."
