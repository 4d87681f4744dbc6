# Generated from berth/client/aio/workloads/outputs.py by `python -m berth.client.generate`; do not edit.
"""List and download the outputs of workloads, and the files of failed pods."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from berth.client.archives import unpack
from berth.client.http import Params
from berth.client.models.files import KeptFile, OutputFile, PodOutputs
from berth.client.sync.resource import Resource

FILES_PER_PAGE = 10_000  # large pages, because the node reads all directories for each page


class PodFiles(Resource):
    """Files from a workload's pods. The argument `pod` has the form ROLE-INDEX, such as worker-0."""

    _folder: str  # part of the URL that selects the kind of files

    def read(
        self, workload_id: str, path: str, *, pod: str | None = None, run: int | None = None
    ) -> Iterator[bytes]:
        """Stream the content of a file."""
        return self._stream(workload_id, {"path": path, "pod": pod, "run": run})

    def download(
        self,
        workload_id: str,
        directory: str | Path,
        *,
        path: str | None = None,
        pod: str | None = None,
        run: int | None = None,
    ) -> Sequence[str]:
        """Write a pod's files to a directory and return their paths.

        `path` selects a file or directory. Existing files are overwritten.
        """
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        params = {"path": path, "pod": pod, "run": run, "archive": True}
        with tempfile.TemporaryFile(dir=target) as archive:
            for part in self._stream(workload_id, params):
                archive.write(part)
            archive.seek(0)
            return unpack(archive, target)

    def _stream(self, workload_id: str, params: Params) -> Iterator[bytes]:
        path = f"workloads/{workload_id}/{self._folder}/download"
        with self._transport.stream(path, params) as response:
            yield from response.iter_bytes()


class Outputs(PodFiles):
    """Outputs of a workload's pods.

    `pod` is ROLE-INDEX, such as worker-0. The default is the first pod with outputs in the latest run.
    """

    _folder = "outputs"

    def list(self, workload_id: str, *, limit: int | None = None) -> Iterator[PodOutputs]:
        """Iterate over the pods that have outputs, latest first."""
        return self._iterate(PodOutputs, f"workloads/{workload_id}/outputs", None, limit)

    def files(
        self, workload_id: str, *, pod: str | None = None, run: int | None = None, limit: int | None = None
    ) -> Iterator[OutputFile]:
        """Iterate over the files of a pod. Raises Conflict if the files are not stored."""
        params = {"pod": pod, "run": run}
        return self._iterate(OutputFile, f"workloads/{workload_id}/outputs/files", params, limit)


class Files(PodFiles):
    """Files of failed pods, which nodes keep until the pod's `files_until`.

    `pod` defaults to the first failed pod of the latest run. Paths begin with `pod`, `tmp`, `var-tmp` or
    `workspace`.
    """

    _folder = "files"

    def list(
        self,
        workload_id: str,
        *,
        path: str | None = None,
        pod: str | None = None,
        run: int | None = None,
        limit: int | None = None,
    ) -> Iterator[KeptFile]:
        """Iterate over all files. With `path`, list only that file or the files in that directory.

        Raises NotFound.
        """
        params = {"path": path, "pod": pod, "run": run}
        return self._iterate(KeptFile, f"workloads/{workload_id}/files", params, limit, FILES_PER_PAGE)

    def delete(self, workload_id: str, *, pod: str | None = None, run: int | None = None) -> None:
        """Delete the files of one failed pod, one run or all runs, without waiting for them to expire."""
        params = {"pod": pod, "run": run}
        self._transport.execute("DELETE", f"workloads/{workload_id}/files", params=params)
