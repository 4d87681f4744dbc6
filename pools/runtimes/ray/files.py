"""Read the files of pods on Ray nodes."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from pools.runtimes.base import RuntimeFailure
from pools.runtimes.files.base import FilesNotFound, PodFiles, VolumeChanges
from pools.runtimes.ray.agents import NodeAgent


class RayFiles:
    """Mixin that reads pods' files for the Ray runtime. Nodes store the files until the pod is forgotten."""

    def list_files(self, pod_id: str, paths: Collection[str]) -> PodFiles:
        with _translate_errors():
            return self._files_agent(pod_id).list_files(pod_id, paths)

    def read_file(self, pod_id: str, path: str, offset: int, limit: int) -> bytes:
        with _translate_errors():
            return self._files_agent(pod_id).read_file(pod_id, path, offset, limit)

    def list_retained_files(self, pod_id: str, workspace: str, path: str) -> PodFiles:
        with _translate_errors():
            return self._files_agent(pod_id).list_retained_files(pod_id, workspace, path)

    def read_retained_file(self, pod_id: str, workspace: str, path: str, offset: int, limit: int) -> bytes:
        with _translate_errors():
            return self._files_agent(pod_id).read_retained_file(pod_id, workspace, path, offset, limit)

    def list_volume_changes(self, pod_id: str, volume: str) -> VolumeChanges:
        with _translate_errors():
            return self._files_agent(pod_id).list_volume_changes(pod_id, volume)

    def read_volume_file(self, pod_id: str, volume: str, path: str, offset: int, limit: int) -> bytes:
        with _translate_errors():
            return self._files_agent(pod_id).read_volume_file(pod_id, volume, path, offset, limit)

    def _files_agent(self, pod_id: str) -> NodeAgent:
        agent = self._node_agent(pod_id)
        if agent is None:
            raise FilesNotFound("the pod's node no longer exists")
        return agent

    def _node_agent(self, pod_id: str) -> NodeAgent | None:
        raise NotImplementedError


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Convert a rejected request to FilesNotFound, or to RuntimeFailure if the agent is too old."""
    try:
        yield
    except ValueError as error:
        if "unknown request" in str(error):
            raise RuntimeFailure("the node's agent is too old to read files. Upgrade the agent") from error
        raise FilesNotFound(str(error)) from error
