# Generated from berth/client/aio/outputs.py by `python -m berth.client.generate`; do not edit.
"""List and download the outputs of workloads."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from berth.client.archives import unpack
from berth.client.models.outputs import OutputFile, PodOutputs
from berth.client.sync.resource import Resource


class Outputs(Resource):
    """Outputs of the pods of a workload. `pod` is ROLE-INDEX.

    The default is the latest run's first pod with outputs.
    """

    def list(self, workload_id: str, *, limit: int | None = None) -> Iterator[PodOutputs]:
        """Iterate over the pods that have outputs, the latest first."""
        return self._iterate(PodOutputs, f"workloads/{workload_id}/outputs", None, limit)

    def files(
        self, workload_id: str, *, pod: str | None = None, run: int | None = None, limit: int | None = None
    ) -> Iterator[OutputFile]:
        """Iterate over the stored files of a pod. Raises Conflict if they are not stored."""
        params = {"pod": pod, "run": run}
        return self._iterate(OutputFile, f"workloads/{workload_id}/outputs/files", params, limit)

    def read(
        self, workload_id: str, path: str, *, pod: str | None = None, run: int | None = None
    ) -> Iterator[bytes]:
        """Stream the content of a file."""
        params = {"path": path, "pod": pod, "run": run}
        with self._transport.stream(f"workloads/{workload_id}/outputs/download", params) as response:
            yield from response.iter_bytes()

    def download(
        self,
        workload_id: str,
        directory: str | Path,
        *,
        path: str | None = None,
        pod: str | None = None,
        run: int | None = None,
    ) -> Sequence[str]:
        """Write a pod's files, or only those at and below `path`, to a directory. Return their paths.

        Files of the same names are replaced.
        """
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        params = {"path": path, "pod": pod, "run": run, "archive": True}
        with tempfile.TemporaryFile(dir=target) as archive:
            with self._transport.stream(f"workloads/{workload_id}/outputs/download", params) as response:
                for part in response.iter_bytes():
                    archive.write(part)
            archive.seek(0)
            return unpack(archive, target)
