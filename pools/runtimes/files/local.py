"""Read the files of pods on this machine."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pools.runtimes.files import reading, volume_changes
from pools.runtimes.files.base import PodFiles, VolumeChanges
from pools.runtimes.pod_dir import PodDir, validate_name
from pools.runtimes.shim.code import DIRECTORY as CODE_DIRECTORY


class LocalFiles:
    """Mixin that reads pods' files for the local runtime."""

    _workspaces: Path

    def list_files(self, pod_id: str, paths: Collection[str]) -> PodFiles:
        return reading.list_files(*self._root_and_subdirectory(pod_id), paths)

    def read_file(self, pod_id: str, path: str, offset: int, limit: int) -> bytes:
        return reading.read_file(*self._root_and_subdirectory(pod_id), path, offset, limit)

    def list_retained_files(self, pod_id: str, workspace: str, path: str) -> PodFiles:
        return reading.list_files_below(self._retained_directories(pod_id, workspace), path)

    def read_retained_file(self, pod_id: str, workspace: str, path: str, offset: int, limit: int) -> bytes:
        return reading.read_listed_file(self._retained_directories(pod_id, workspace), path, offset, limit)

    def list_volume_changes(self, pod_id: str, volume: str) -> VolumeChanges:
        return volume_changes.list_changes(self._pod_dir(pod_id).require_ended(), validate_name(volume))

    def read_volume_file(self, pod_id: str, volume: str, path: str, offset: int, limit: int) -> bytes:
        directory = self._pod_dir(pod_id).require_ended()
        return volume_changes.read_file(directory, validate_name(volume), path, offset, limit)

    def _retained_directories(self, pod_id: str, workspace: str) -> dict[str, tuple[str, str]]:
        return self._pod_dir(pod_id).retained_directories(self._workspaces / validate_name(workspace))

    def _root_and_subdirectory(self, pod_id: str) -> tuple[str, str]:
        """Return the pod's own directory, and the subdirectory that paths are relative to."""
        pod = self._pod_dir(pod_id)
        return str(pod.work_directory), CODE_DIRECTORY if "code_url" in (pod.read("order") or {}) else ""

    def _pod_dir(self, pod_id: str) -> PodDir:
        raise NotImplementedError
