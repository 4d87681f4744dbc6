"""Resolve the container image of each run to a digest before its first pod starts.

All pods of a run use the same digest, even if the tag moves. Registries are asked in the background, so pods
whose image is not resolved yet start in a later tick.
"""

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from berth.core.images import ImageReference, parse_image
from berth.db.crash_points import assert_no_transaction, crash_point
from berth.db.lease import fenced_transaction
from projects.models import Phase, Pod, RunImage, Workload
from projects.services.secrets import UnusableSecret, registry_auth
from projects.services.workloads.moves import move
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.gangs import ACTOR, stop_live_pods
from scheduler.registries.base import RegistryError, Resolution, RunKey

log = logging.getLogger(__name__)

FIRST_DELAY, MAX_DELAY = timedelta(seconds=2), timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class ReadyImage:
    """Image by digest, with the auth.json for its pull."""

    reference: str = ""
    auth: str = field(default="", repr=False)


NO_IMAGE = ReadyImage()


@dataclass(frozen=True, slots=True)
class RunImages:
    """Images of starting runs, by workload. `pending` has the reasons that runs cannot start yet."""

    ready: Mapping[uuid.UUID, ReadyImage] = field(default_factory=dict)
    pending: Mapping[uuid.UUID, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Run:
    """A run with an image. `pod` is any of its pods."""

    pod: Pod
    image: ImageReference
    row: RunImage | None = None

    @property
    def key(self) -> RunKey:
        return self.pod.workload_id, self.pod.run

    @property
    def digest(self) -> str:
        return self.row.digest if self.row else ""


def resolve_images(pods: Iterable[Pod], now: datetime, context: SchedulerContext) -> RunImages:
    """Return the images of the pods' runs. Record finished lookups, and start those that are due.

    A workload whose image can never be resolved is stopped and fails.
    """
    assert_no_transaction()
    runs = _runs_with_images(pods, context)
    unresolved = {key: run for key, run in runs.items() if not run.digest}
    if unresolved:
        by_digest = {key: Resolution(run.image.digest) for key, run in unresolved.items() if run.image.digest}
        finished = by_digest | dict(context.images.take_results(unresolved.keys()))
        _record({key: (unresolved[key], result) for key, result in finished.items()}, now, context)
    images = {run.pod.workload_id: _ready_or_reason(run, now, context) for run in runs.values()}
    return RunImages(
        {pk: image for pk, image in images.items() if isinstance(image, ReadyImage)},
        {pk: reason for pk, reason in images.items() if isinstance(reason, str)},
    )


def _runs_with_images(pods: Iterable[Pod], context: SchedulerContext) -> dict[RunKey, _Run]:
    runs: dict[RunKey, _Run] = {}
    for pod in pods:
        spec = context.specs.get(pod.workload).spec
        if spec is not None and spec.image is not None and (pod.workload_id, pod.run) not in runs:
            runs[pod.workload_id, pod.run] = _Run(pod, parse_image(spec.image))
    if runs:
        for row in RunImage.objects.filter(workload_id__in={pk for pk, _ in runs}):
            if (row.workload_id, row.run) in runs:
                runs[row.workload_id, row.run].row = row
    return runs


def _ready_or_reason(run: _Run, now: datetime, context: SchedulerContext) -> ReadyImage | str:
    """Return the run's image, or why there is none yet. Start a lookup if one is due."""
    try:
        auth = registry_auth(run.pod.workload.project, run.pod.node.pool)
    except UnusableSecret as error:
        return str(error)
    if run.digest:
        return ReadyImage(run.image.with_digest(run.digest), auth)
    row = run.row
    if row is None or row.retry_at is None or now >= row.retry_at:
        context.images.request(run.key, run.image, auth)
    return f"{row.error} Berth tries again." if row else f"Looking up the digest of {run.image}."


def _record(
    finished: Mapping[RunKey, tuple[_Run, Resolution]], now: datetime, context: SchedulerContext
) -> None:
    """Store the results of lookups, unless the workload has been stopped or restarted meanwhile."""
    if not finished:
        return
    with fenced_transaction(context.held_lease):
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        starting = rows.filter(pk__in={pk for pk, _ in finished}, phase__in=(Phase.STARTING, Phase.RUNNING))
        for workload in starting.order_by("pk"):
            run, result = finished.get((workload.pk, workload.run), (None, None))
            if run is not None and result is not None:
                _record_result(workload, run, result, now)
    crash_point("dispatch.images")


def _record_result(workload: Workload, run: _Run, result: Resolution, now: datetime) -> None:
    row = run.row or RunImage(workload=workload, run=workload.run, image=str(run.image))
    if result.error is None:
        row.digest, row.resolved_at, row.retry_at, row.error = result.digest, now, None, ""
    else:
        log.warning("the image of %s cannot be resolved: %s", workload.pk, result.error)
        row.attempts += 1
        row.error, row.retry_at = str(result.error), now + delay_after(row.attempts)
    row.save()
    run.row = row
    if result.error is not None and result.error.is_permanent:
        _fail_workload(workload, result.error, now)


def delay_after(attempts: int) -> timedelta:
    return min(MAX_DELAY, FIRST_DELAY * 2 ** min(attempts - 1, 16))


def _fail_workload(workload: Workload, error: RegistryError, now: datetime) -> None:
    move(
        workload,
        expected=[workload.phase],
        to=Phase.STOPPING,
        next_phase=Phase.FAILED,
        reason=str(error.fault),
        message=str(error),
        actor=ACTOR,
        now=now,
        data={"run": workload.run},
    )
    stop_live_pods([workload.pk], now)
