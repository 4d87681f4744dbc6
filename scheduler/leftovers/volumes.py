"""Thread that stores the changes that finished pods made to S3 volumes."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from berth.core.errors import Conflict, Unavailable
from berth.core.wording.words import format_count
from berth.db.loops.crash_points import assert_no_transaction, crash_point
from berth.db.loops.lease import HeldLease, fenced_transaction
from pools.buckets.logins import NO_BOTO3, find_login
from pools.engine.volumes import Volume, read_volumes, usable_volumes
from pools.runtimes.base import Runtime, RuntimeFailure
from pools.runtimes.files.base import FilesNotFound, VolumeChanges
from pools.runtimes.files.reading import SKIPPED_MAX
from projects.models import OutputState, PodOutputs
from projects.services import events
from projects.services.outputs import OutputsRejected
from scheduler.leftovers.collector import WAITING, LeftoversCollector, error_sentence

if TYPE_CHECKING:
    from pools.buckets.bucket import Bucket
    from pools.buckets.writer import BucketWriter
    from projects.services.volume_changes import Progress, VolumeTransfer

log = logging.getLogger(__name__)

TURN_SECONDS = 30.0  # time slice of a project, before the next project's turn
SAVE_SECONDS = 2.0  # minimum time between progress updates, except for uploads in parts
STORED, FAILED = "volume_stored", "volume_failed"  # event kinds
MIB = 2**20


class VolumesCollector(LeftoversCollector):
    """Thread that copies changed files from nodes to the S3 objects of volumes. Projects take turns."""

    lease_name: ClassVar[str] = "volume_changes"
    subject: ClassVar[str] = "the storing of changes to volumes"
    waiting: ClassVar[str] = WAITING.format(condition="volume <> ''")

    def run_job(self, held: HeldLease) -> None:
        waiting = self._due_outputs(self._clock.now()).exclude(volume="")
        projects = waiting.order_by("pod__workload__project").values_list("pod__workload__project", flat=True)
        for project in list(projects.distinct()):
            deadline = time.monotonic() + TURN_SECONDS
            rows = waiting.filter(pod__workload__project=project)
            for outputs in rows.order_by("pod__ended_at", "pk"):
                if time.monotonic() < deadline:
                    self._upload_changes(outputs, held, partial(_has_passed, deadline))

    def _upload_changes(self, outputs: PodOutputs, held: HeldLease, is_time_up: Callable[[], bool]) -> None:
        assert_no_transaction()
        try:
            transfer = self._open_transfer(outputs, held)
            if transfer is not None and not transfer.run(is_time_up):
                self._update_if_waiting(
                    outputs, held, progress=transfer.progress.to_json(), message="", attempts=0
                )
                return
        except (OutputsRejected, FilesNotFound) as error:
            self._give_up(outputs, held, error)
        except (RuntimeFailure, Conflict, Unavailable, LookupError, OSError) as error:
            self._postpone(outputs, held, self._clock.now(), error)
        else:
            crash_point("volumes.copied")
            self._mark_outputs_stored(outputs, held, transfer)

    def _open_transfer(self, outputs: PodOutputs, held: HeldLease) -> "VolumeTransfer | None":
        """Return the transfer of a pod's changes, or None if the pod has changed nothing."""
        pod = outputs.pod
        runtime, pod_id = self._runtime_of(pod.node.pool), str(pod.pk)
        try:
            changes = runtime.list_volume_changes(pod_id, outputs.volume)
        except FilesNotFound:
            if pod.started_at is not None:
                raise
            changes = VolumeChanges()
        if changes == VolumeChanges():
            return None
        volume = _find_volume(outputs)
        bucket, writer = _open_bucket(outputs, volume)
        from projects.services.volume_changes import Progress, VolumeTransfer

        return VolumeTransfer(
            changes, Progress.from_json(outputs.progress), volume, bucket, writer,
            read=lambda path, offset, limit: self._read_file(runtime, outputs, held, path, offset, limit),
            save=self._progress_saver(outputs, held),
        )  # fmt: skip

    def _read_file(
        self, runtime: Runtime, outputs: PodOutputs, held: HeldLease, path: str, offset: int, limit: int
    ) -> bytes:
        self._renew_lease(held)
        return runtime.read_volume_file(str(outputs.pod_id), outputs.volume, path, offset, limit)

    def _progress_saver(self, outputs: PodOutputs, held: HeldLease) -> "Callable[[Progress], None]":
        """Return a function that stores the progress of an upload. The function raises LeadershipLost."""
        due = 0.0

        def save_progress(progress: "Progress") -> None:
            nonlocal due
            if progress.upload is None and time.monotonic() < due:
                return
            due = time.monotonic() + SAVE_SECONDS
            self._renew_lease(held)
            self._update_if_waiting(outputs, held, progress=progress.to_json())

        return save_progress

    def _mark_outputs_stored(
        self, outputs: PodOutputs, held: HeldLease, transfer: "VolumeTransfer | None"
    ) -> None:
        now = self._clock.now()
        if transfer is None:
            self._update_if_waiting(outputs, held, state=OutputState.STORED, message="", stored_at=now)
            return
        progress = transfer.progress
        files = format_count(progress.file_count, "changed file")
        text = f"Stored {files} ({progress.size / MIB:,.1f} MiB) from pod {_pod_name(outputs)} in volume "
        text += outputs.volume
        deleted = format_count(progress.deleted_count, "object")
        text += f", and deleted {deleted}." if progress.deleted_count else "."
        columns = {
            "state": OutputState.STORED,
            "message": "",
            "stored_at": now,
            "skipped": dict(sorted(transfer.skipped.items())[:SKIPPED_MAX]),
            "file_count": progress.file_count,
            "size": progress.size,
            "deleted_count": progress.deleted_count,
        }
        self._update_with_event(outputs, held, STORED, text, columns)

    def _give_up(self, outputs: PodOutputs, held: HeldLease, error: Exception) -> None:
        self._abort_upload(outputs)
        text = f"Changes by pod {_pod_name(outputs)} to volume {outputs.volume} could not be stored: "
        columns = {"state": OutputState.FAILED, "message": error_sentence(error)}
        self._update_with_event(outputs, held, FAILED, text + error_sentence(error), columns)

    def _update_with_event(
        self, outputs: PodOutputs, held: HeldLease, kind: str, text: str, columns: dict[str, Any]
    ) -> None:
        with fenced_transaction(held):
            rows = PodOutputs.objects.filter(pk=outputs.pk, state=OutputState.WAITING)
            if rows.update(**columns):
                events.record(kind, outputs.pod.workload, text, actor="scheduler")

    def _abort_upload(self, outputs: PodOutputs) -> None:
        """Delete the parts of an unfinished upload, because their storage costs money."""
        progress = PodOutputs.objects.filter(pk=outputs.pk).values_list("progress", flat=True).first()
        if not progress or not progress["upload"]:
            return
        # `read_volumes` also returns volumes that have become read-only.
        volumes = read_volumes(outputs.pod.node.pool.volumes)
        volume = next((each for each in volumes if each.cache == outputs.source), None)
        try:
            if volume is None:
                raise Conflict("The pod's pool no longer has this volume.")
            _, writer = _open_bucket(outputs, volume)
            writer.abort(progress["upload"]["path"], progress["upload"]["id"])
        except (Conflict, Unavailable) as error:
            log.warning("parts of an upload to the volume %s could not be deleted: %s", outputs.volume, error)


def _has_passed(deadline: float) -> bool:
    return time.monotonic() >= deadline


def _find_volume(outputs: PodOutputs) -> Volume:
    """Return the volume of a pod's outputs.

    Raises OutputsRejected if the project is no longer allowed to write to the volume.
    """
    pool, project = outputs.pod.node.pool, outputs.pod.workload.project.name
    volume = usable_volumes(pool.volumes, project).get(outputs.volume)
    if volume is None or volume.cache != outputs.source or not volume.is_writable:
        raise OutputsRejected(
            f"Pool {pool.name} no longer allows project {project} to write to the volume {outputs.volume}. "
            "Ask an admin to restore the permission."
        )
    return volume


def _open_bucket(outputs: PodOutputs, volume: Volume) -> "tuple[Bucket, BucketWriter]":
    """Return a reader and a writer for a volume's bucket.

    Raises Conflict if boto3 or usable credentials are missing.
    """
    try:
        from pools.buckets.bucket import Bucket
        from pools.buckets.writer import BucketWriter
    except ImportError:
        raise Conflict(f"The volume {NO_BOTO3}") from None
    login = find_login(outputs.pod.node.pool, volume)
    return Bucket(volume, login), BucketWriter(volume, login)


def _pod_name(outputs: PodOutputs) -> str:
    return f"{outputs.pod.role}-{outputs.pod.index}"
