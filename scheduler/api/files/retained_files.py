"""Read the files of failed pods from their nodes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from berth.core.errors import NotFound, Unavailable
from berth.core.problems import format_value
from berth.server.wiring import UnavailableImplementation, load_wiring
from pools.runtimes.base import Runtime, RuntimeFailure
from pools.runtimes.files.base import FilesNotFound, PodFile, PodFiles
from projects.actor import Actor
from projects.code.archive import archive_parts, archive_size
from projects.models import Pod, Workload
from projects.services.retained_files import find_pod_with_retained_files

PART_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class RetainedFiles:
    """Files of one failed pod.

    Methods raise NotFound, or Unavailable if the node does not respond.
    """

    pod: Pod
    runtime: Runtime

    def list(self, path: str = "") -> PodFiles:
        """List the files at and below a path such as `pod/results`, or all files if the path is empty."""
        with _translate_errors():
            return self.runtime.list_retained_files(*self._pod_and_workload_ids, path)

    def read_first_bytes(self, file: PodFile, size: int) -> bytes:
        """Return the first `size` bytes of a file."""
        with _translate_errors():
            return self.runtime.read_retained_file(*self._pod_and_workload_ids, file.path, 0, size)

    def read(self, file: PodFile) -> Iterator[bytes]:
        """Yield the content of a file, up to its listed size. Raises NotFound if the file was truncated."""
        offset = 0
        while offset < file.size:
            with _translate_errors():
                size = min(PART_BYTES, file.size - offset)
                part = self.runtime.read_retained_file(*self._pod_and_workload_ids, file.path, offset, size)
            if not part:
                raise NotFound(f"{file.path} was truncated while it was being read. Download the file again.")
            offset += len(part)
            yield part

    def archive(self, files: "tuple[PodFile, ...]") -> tuple[int, Iterator[bytes]]:
        """Return the size and the chunks of a tar archive of the files."""
        entries = [{"path": each.path, "size": each.size, "executable": each.executable} for each in files]
        mtime = int((self.pod.ended_at or self.pod.since).timestamp())
        contents = (self.read(each) for each in files)
        return archive_size(entries, mtime), archive_parts(entries, mtime, contents)

    @property
    def _pod_and_workload_ids(self) -> tuple[str, str]:
        return str(self.pod.pk), str(self.pod.workload_id)


def find_retained_files(
    actor: Actor, workload: Workload, pod: str | None, run: int | None, now: datetime
) -> RetainedFiles:
    """Return the files of a failed pod, by default the lowest-ranked failed pod of the latest run.

    Raises NotFound, Forbidden or Unavailable.
    """
    chosen = find_pod_with_retained_files(actor, workload, pod, run, now)
    try:
        return RetainedFiles(chosen, load_wiring().runtime_for(chosen.node.pool))
    except UnavailableImplementation as error:
        raise Unavailable(str(error)) from None


def require_files(files: PodFiles, path: str) -> None:
    """Raise NotFound if there are no files.

    If the path was skipped, the error contains the reason.
    """
    if not files.files:
        reason = f" ({files.skipped[path]})" if path in files.skipped else ""
        raise NotFound(
            f"The failed pod has no readable file {format_value(path)}{reason}. "
            "List the pod's files with `berth files list WORKLOAD`."
        )


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except FilesNotFound as error:
        raise NotFound(f"The files cannot be read: {error}.") from error
    except (RuntimeFailure, LookupError, OSError) as error:
        raise Unavailable(f"The files cannot be read right now: {error}. Try again later.") from error
