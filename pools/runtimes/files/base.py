"""Interface for reading pods' files from a runtime."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class PodFile:
    """Regular file of a pod. `path` is relative to the directory that was listed. `size` is in bytes."""

    path: str
    size: int
    executable: bool


@dataclass(frozen=True)
class PodFiles:
    """Files of a pod, sorted by path. `skipped` contains the reason for each omitted path."""

    files: tuple[PodFile, ...]
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class VolumeChanges:
    """Changes that one pod made to an S3 volume.

    `files` are new and changed files, relative to the volume. `deleted` contains the path and ETag of each
    deleted object, and `skipped` the reason for each omitted path.
    """

    files: tuple[PodFile, ...] = ()
    deleted: tuple[tuple[str, str], ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)


class FilesNotFound(ValueError):
    """Raised if a pod's files have been deleted, or if a file cannot be read as a regular file."""


class PodFileReader(Protocol):
    """Interface for reading pods' files, implemented by runtimes."""

    def list_files(self, pod_id: str, paths: Collection[str]) -> PodFiles:
        """Return the regular files at and below `paths`, without links. Raises FilesNotFound.

        Paths are relative to the pod's code or, without code, to the pod's directory. The files exist until
        the pod is forgotten.
        """
        ...

    def read_file(self, pod_id: str, path: str, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes of a file from `offset`, or b"" at its end. Raises FilesNotFound."""
        ...

    def list_retained_files(self, pod_id: str, workspace: str, path: str) -> PodFiles:
        """Return the regular files of a finished pod at or below `path`, or all of them if `path` is empty.

        Raises FilesNotFound. Paths begin with `pod`, `tmp`, `var-tmp` or `workspace`. Secrets and links are
        omitted. The files exist until the pod is forgotten.
        """
        ...

    def read_retained_file(self, pod_id: str, workspace: str, path: str, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes of a file from `offset`, or b"" at its end. Raises FilesNotFound."""
        ...

    def list_volume_changes(self, pod_id: str, volume: str) -> VolumeChanges:
        """Return the changes that a finished pod made to a writable S3 volume. Raises FilesNotFound.

        A pod whose command never started has changed nothing.
        """
        ...

    def read_volume_file(self, pod_id: str, volume: str, path: str, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes of a file from `offset`, or b"" at its end. Raises FilesNotFound."""
        ...
