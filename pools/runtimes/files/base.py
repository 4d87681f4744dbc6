"""Interface for reading pods' files from a runtime."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class PodFile:
    """Regular file of a pod. `path` is relative to the pod's directory, and `size` is in bytes."""

    path: str
    size: int
    executable: bool


@dataclass(frozen=True)
class PodFiles:
    """Files of a pod, sorted by path. `skipped` maps each omitted path to the reason."""

    files: tuple[PodFile, ...]
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class VolumeChanges:
    """Changes of one pod to a volume in S3.

    `files` are new and changed files, with paths relative to the volume. `deleted` has the path and the ETag
    of each object that the pod received as a file and deleted. `skipped` maps each omitted path to
    the reason.
    """

    files: tuple[PodFile, ...] = ()
    deleted: tuple[tuple[str, str], ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)


class FilesGone(ValueError):
    """Raised if the files of a pod no longer exist, or if a file cannot be read as a regular file."""


class PodFileReader(Protocol):
    """Part of a runtime that reads pods' files."""

    def list_files(self, pod_id: str, paths: Collection[str]) -> PodFiles:
        """Return the regular files at and below these relative paths.

        The paths are relative to the directory with the pod's code if it has code, otherwise to the pod's
        own directory. Links are skipped. A pod's files exist until it is forgotten. Raises FilesGone.
        """
        ...

    def read_file(self, pod_id: str, path: str, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes of a file, or no bytes at its end. Raises FilesGone."""
        ...

    def list_kept_files(self, pod_id: str, workspace: str, path: str) -> PodFiles:
        """Return an ended pod's regular files at and below a path, or all of its files if the path is empty.

        Paths begin with `pod`, `tmp`, `var-tmp` or `workspace`. Secrets are not among the files, and links
        are skipped. The files exist until the pod is forgotten. Raises FilesGone.
        """
        ...

    def read_kept_file(self, pod_id: str, workspace: str, path: str, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes of a file, or no bytes at its end. Raises FilesGone."""
        ...

    def list_volume_changes(self, pod_id: str, volume: str) -> VolumeChanges:
        """Return what an ended pod has changed in a writable volume in S3.

        A pod whose command never started has changed nothing. Raises FilesGone.
        """
        ...

    def read_volume_file(self, pod_id: str, volume: str, path: str, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes of a file, or no bytes at its end. Raises FilesGone."""
        ...
