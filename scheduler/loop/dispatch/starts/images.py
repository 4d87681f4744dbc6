"""Resolve each run's container image to a digest before its first pod starts.

All pods of a run use the same digest. Registries are queried in the background.
"""

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from berth.core.spec.sections.retry import IMAGE_PULL
from berth.core.values.images import ImageReference, parse_image
from berth.db.loops.crash_points import assert_no_transaction, crash_point
from berth.db.loops.lease import fenced_transaction
from berth.db.writes.bulk_rows import insert_rows, update_rows
from berth.db.writes.set_writes import write_with_bisection
from pools.models.secret import Secret
from projects.engine.retries import Failure
from projects.models import Phase, Pod, RunImage, Workload
from projects.services.secrets import RegistryAuth, UnusableSecret, registry_auths
from projects.services.workloads.phase_transitions import PhaseTransition
from scheduler.loop.context import SchedulerContext
from scheduler.loop.dispatch.lifecycle.gangs import change_phases_and_stop_pods
from scheduler.loop.dispatch.lifecycle.retries import transition_after_failure
from scheduler.loop.observe.specs import SpecCache
from scheduler.registries.base import Resolution, RunKey

log = logging.getLogger(__name__)

FIRST_DELAY, MAX_DELAY = timedelta(seconds=2), timedelta(seconds=60)
RESULT_COLUMNS = ["digest", "resolved_at", "attempts", "retry_at", "error"]

Credentials = dict[tuple[int, int], RegistryAuth | UnusableSecret]  # credentials by project ID and pool ID


@dataclass(frozen=True, slots=True)
class ReadyImage:
    """Image with its digest, the auth.json to pull it, and the secret with the credentials, if any."""

    reference: str = ""
    auth: str = field(default="", repr=False)
    secret: Secret | None = field(default=None, repr=False)


NO_IMAGE = ReadyImage()


@dataclass(frozen=True, slots=True)
class RunImages:
    """Images of starting runs, keyed by workload.

    `pending` contains the reasons why other runs cannot start yet.
    """

    ready: Mapping[uuid.UUID, ReadyImage] = field(default_factory=dict)
    pending: Mapping[uuid.UUID, str] = field(default_factory=dict)


@dataclass(slots=True)
class _ImageRun:
    """Workload run that needs an image. `pod` is an arbitrary pod of the run."""

    pod: Pod
    image: ImageReference
    row: RunImage | None = None

    @property
    def run_key(self) -> RunKey:
        return self.pod.workload_id, self.pod.run

    @property
    def digest(self) -> str:
        return self.row.digest if self.row else ""


@dataclass(frozen=True, slots=True)
class ImageLookupResult:
    """Result of resolving a run's image reference to a digest. The workload's row is locked."""

    workload: Workload
    run: _ImageRun
    resolution: Resolution

    def build_row(self, now: datetime) -> RunImage:
        """Return the run's row with the result of the lookup. The row is not saved."""
        new = RunImage(workload=self.workload, run=self.workload.run, image=str(self.run.image))
        row = new if self.run.row is None else copy(self.run.row)
        if self.resolution.error is None:
            row.digest, row.resolved_at, row.retry_at, row.error = self.resolution.digest, now, None, ""
        else:
            row.attempts += 1
            row.error, row.retry_at = str(self.resolution.error), now + lookup_retry_delay(row.attempts)
        return row

    def failure_transition(self, now: datetime, specs: SpecCache) -> PhaseTransition | None:
        """Return the transition for a workload whose image can never be resolved, or None if it may still be
        resolved.
        """
        error = self.resolution.error
        if error is None or not error.is_permanent:
            return None
        failure, parsed = Failure(IMAGE_PULL), specs.get(self.workload)
        return transition_after_failure(self.workload, parsed, failure, str(error.fault), str(error), now, {})


def resolve_images(pods: Iterable[Pod], now: datetime, context: SchedulerContext) -> RunImages:
    """Return the images of the pods' runs, and look up missing ones in the background.

    A workload whose image cannot be resolved is stopped.
    """
    assert_no_transaction()
    runs = _runs_with_images(pods, context)
    unresolved = {key: run for key, run in runs.items() if not run.digest}
    if unresolved:
        by_digest = {key: Resolution(run.image.digest) for key, run in unresolved.items() if run.image.digest}
        finished = by_digest | dict(context.images.take_results(unresolved.keys()))
        _record_lookups({key: (unresolved[key], result) for key, result in finished.items()}, now, context)
    credentials = registry_auths({_credentials_key(run.pod) for run in runs.values()}) if runs else {}
    images = {
        run.pod.workload_id: _image_or_pending_reason(run, credentials, now, context) for run in runs.values()
    }
    return RunImages(
        {pk: image for pk, image in images.items() if isinstance(image, ReadyImage)},
        {pk: reason for pk, reason in images.items() if isinstance(reason, str)},
    )


def _runs_with_images(pods: Iterable[Pod], context: SchedulerContext) -> dict[RunKey, _ImageRun]:
    runs: dict[RunKey, _ImageRun] = {}
    for pod in pods:
        spec = context.specs.get(pod.workload).spec
        if spec is not None and spec.image is not None and (pod.workload_id, pod.run) not in runs:
            runs[pod.workload_id, pod.run] = _ImageRun(pod, parse_image(spec.image))
    if runs:
        for row in RunImage.objects.filter(workload_id__in={pk for pk, _ in runs}):
            if (row.workload_id, row.run) in runs:
                runs[row.workload_id, row.run].row = row
    return runs


def _image_or_pending_reason(
    run: _ImageRun, credentials: Credentials, now: datetime, context: SchedulerContext
) -> ReadyImage | str:
    """Return the run's image, or the reason why it is not available yet. Start a lookup if one is due."""
    auth = credentials[_credentials_key(run.pod)]
    if isinstance(auth, UnusableSecret):
        return str(auth)
    if run.digest:
        secret = auth.secret_for_image(run.image.name)
        return ReadyImage(run.image.with_digest(run.digest), auth.json, secret)
    row = run.row
    if row is None or row.retry_at is None or now >= row.retry_at:
        context.images.request(run.run_key, run.image, auth.json)
    return f"{row.error} Berth tries again." if row else f"Looking up the digest of {run.image}."


def _credentials_key(pod: Pod) -> tuple[int, int]:
    return pod.workload.project_id, pod.node.pool_id


def _record_lookups(
    finished: Mapping[RunKey, tuple[_ImageRun, Resolution]], now: datetime, context: SchedulerContext
) -> None:
    """Store the results of lookups, except for workloads that have since been stopped or restarted."""
    if not finished:
        return
    with fenced_transaction(context.held_lease):
        rows = Workload.objects.select_for_update(of=("self",)).select_related("project__department")
        starting = rows.filter(pk__in={pk for pk, _ in finished}, phase__in=(Phase.STARTING, Phase.RUNNING))
        results = [
            ImageLookupResult(workload, *finished[workload.pk, workload.run])
            for workload in starting.order_by("pk")
            if (workload.pk, workload.run) in finished
        ]
        rejected = write_with_bisection(results, lambda part: _write_results(part, now, context.specs))
    for each, reason in rejected:
        log.error("the image of %s could not be recorded: %s", each.workload.pk, reason)
    crash_point("dispatch.images")


def _write_results(results: Sequence[ImageLookupResult], now: datetime, specs: SpecCache) -> None:
    """Store the results for locked workloads. Stop workloads whose image cannot be resolved."""
    rows = [each.build_row(now) for each in results]
    existing = [row for row in rows if row.pk is not None]
    insert_rows([row for row in rows if row.pk is None])
    update_rows(existing, RESULT_COLUMNS)
    change_phases_and_stop_pods(
        [transition for each in results if (transition := each.failure_transition(now, specs)) is not None],
        now,
    )
    for each, row in zip(results, rows, strict=True):
        each.run.row = row


def lookup_retry_delay(attempts: int) -> timedelta:
    return min(MAX_DELAY, FIRST_DELAY * 2 ** min(attempts - 1, 16))
