"""Store the outputs of ended pods, and look them up for users."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from berth.core.errors import Conflict, NotFound
from berth.core.problems import format_value
from berth.core.spec.sections.code import CHUNK_BYTES, path_problem
from pools.runtimes.base import Runtime
from pools.runtimes.files.base import FilesNotFound, PodFile, PodFiles
from projects.code.base import CodeFile
from projects.models import OutputState, PodOutputs, Project, Workload
from projects.models.code import CodeTree
from projects.services.code import write_chunks, write_tree

MIB = 2**20
CHUNKS_AT_ONCE = 4  # maximum number of chunks in memory


class OutputsRejected(Exception):
    """Raised if a pod's outputs cannot be stored. The message states the reason for users."""


def store_files(
    project: Project, runtime: Runtime, pod_id: str, listing: PodFiles, now: datetime,
    proceed: Callable[[], None],
) -> CodeTree | None:  # fmt: skip
    """Copy the files from the pod's node to the store.

    Return the tree of these files, or None if there are none. `proceed` is called after each chunk and may
    raise an error to stop. Raises OutputsRejected, RuntimeFailure, StoreFailure, or FilesNotFound.
    """
    _check_size(listing.files)
    files = [file for file in listing.files if not path_problem(file.path)]
    stored = [_store_file(project, runtime, pod_id, file, now, proceed) for file in files]
    try:
        return write_tree(project, stored, now)
    except Conflict as error:
        raise _no_space_error(project) from error


def _check_size(files: Sequence[PodFile]) -> None:
    size, limit = sum(file.size for file in files), settings.BERTH_OUTPUTS_MIB * MIB
    if len(files) > settings.BERTH_CODE_FILES:
        raise OutputsRejected(
            f"The outputs contain {len(files):,} files, but the maximum is {settings.BERTH_CODE_FILES:,}. "
            "Pack them into an archive, or declare fewer paths."
        )
    if size > limit:
        largest = max(files, key=lambda file: file.size)
        raise OutputsRejected(
            f"The outputs take {size / MIB:,.1f} MiB, but the maximum is {limit / MIB:,.1f} MiB. Declare "
            f"fewer paths. The largest file is {largest.path} ({largest.size / MIB:,.1f} MiB)."
        )


def _store_file(
    project: Project, runtime: Runtime, pod_id: str, file: PodFile, now: datetime,
    proceed: Callable[[], None],
) -> CodeFile:  # fmt: skip
    digests: list[str] = []
    size, pending = 0, dict[str, bytes]()
    for content in _read_chunks(runtime, pod_id, file):
        digests.append(digest := hashlib.sha256(content).hexdigest())
        pending[digest] = content
        size += len(content)
        if len(pending) == CHUNKS_AT_ONCE:
            _write(project, pending, now)
            pending = {}
            proceed()
    if pending:
        _write(project, pending, now)
        proceed()
    return CodeFile(file.path, size, tuple(digests), file.executable)


def _write(project: Project, contents: dict[str, bytes], now: datetime) -> None:
    try:
        write_chunks(project, contents, now)
    except Conflict as error:
        raise _no_space_error(project) from error


def _no_space_error(project: Project) -> OutputsRejected:
    return OutputsRejected(
        f"The outputs do not fit into the storage of project {project.name}, which has "
        f"{settings.BERTH_CODE_PROJECT_MIB:,} MiB for code and outputs. Delete ended workloads, "
        "whose outputs are then deleted within a day."
    )


def _read_chunks(runtime: Runtime, pod_id: str, file: PodFile) -> Iterator[bytes]:
    """Yield the file's content in parts of CHUNK_BYTES, up to the size that it had when it was listed."""
    for offset in range(0, file.size, CHUNK_BYTES):
        wanted = min(CHUNK_BYTES, file.size - offset)
        content = b""
        while len(content) < wanted:
            part = runtime.read_file(pod_id, file.path, offset + len(content), wanted - len(content))
            if not part:
                raise FilesNotFound(f"{file.path} was truncated while it was being read")
            content += part
        yield content


def workload_outputs(workload: Workload) -> QuerySet[PodOutputs]:
    """Return the outputs and volume changes of the workload's pods, latest run first."""
    rows = PodOutputs.objects.filter(pod__workload=workload).select_related("pod", "tree")
    return rows.defer("tree__files", "tree__chunks").order_by("-pod__created_at", "-pod", "volume")


def find_outputs(workload: Workload, pod: str | None, run: int | None) -> PodOutputs:
    """Return the stored outputs of one pod, by default the lowest-ranked pod of the latest run.

    `pod` has the form ROLE-INDEX. Raises NotFound, or Conflict if the outputs are not stored.
    """
    rows = PodOutputs.objects.filter(pod__workload=workload, volume="").select_related("pod", "tree")
    if run is not None:
        rows = rows.filter(pod__run=run)
    if pod is not None:
        role, _, index = pod.rpartition("-")
        rows = rows.filter(pod__role=role, pod__index=int(index) if _is_index(index) else -1)
    chosen = rows.order_by("-pod__run", "pod__rank", "-pod__created_at").first()
    if chosen is None:
        wanted = "" if pod is None else f" of the pod {format_value(pod)}"
        wanted += "" if run is None else f" in run {run}"
        advice = f"List stored outputs with `berth outputs list {workload.handle}`."
        raise NotFound(f"Workload {workload.name} has no outputs{wanted}. {advice}")
    if chosen.tree is None:
        raise Conflict(chosen.message or "The outputs are stored after the pod has ended.")
    return chosen


def require_stored_changes(workloads: Iterable[Workload]) -> None:
    """Raise Conflict if changes that the workloads' pods made to S3 volumes have not been stored yet."""
    rows = PodOutputs.objects.filter(pod__workload__in=workloads, state=OutputState.WAITING)
    row = rows.exclude(volume="").select_related("pod").order_by("pk").first()
    if row is not None:
        pod = f"{row.pod.role}-{row.pod.index}"
        raise Conflict(
            f"Changes by pod {pod} to volume {row.volume} are not stored yet. Try again when they "
            f"are. {row.message}".strip()
        )


def output_files(tree: CodeTree, path: str = "") -> list[dict[str, Any]]:
    """Return the file at the path, or all files below it, sorted by path. An empty path selects all files."""
    return [file for file in tree.files if not path or f"{file['path']}/".startswith(f"{path}/")]


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
