"""Local copies of finished pods' files. All Berth processes that share a BERTH_HOME read them."""

import json
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pools.kubernetes.files.container import POD, WORKSPACE, FilesToCopy
from pools.runtimes.files import reading
from pools.runtimes.files.base import FilesNotFound, PodFiles, VolumeChanges
from pools.runtimes.pod_dir import validate_name
from pools.runtimes.shim.records import sync_directory

TREE, INFO = "tree", "info.json"
NOT_COPIED = "the pod's files no longer exist: the pod was deleted before Berth had copied them"
NOT_RETAINED = "the pod's files were not kept"


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Limits on the copied files of one pod: total size in bytes, and number of files."""

    size: int = 4 * 2**30
    files: int = 10_000


class FileCopies:
    """Copies of pods' files in the directory `root`.

    `limits` returns the size limits, and is called for each copy.
    """

    def __init__(self, root: Path, limits: Callable[[], CopyLimits]) -> None:
        self._root, self.limits = root, limits
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def has_copy(self, pod_id: str) -> bool:
        return (self._path(pod_id) / INFO).exists()

    @contextmanager
    def create_draft(self, pod_id: str) -> Iterator[Path]:
        """Yield a new directory for a copy. Delete the directory afterwards unless `store_draft` has stored
        it.
        """
        draft = Path(tempfile.mkdtemp(prefix=f".{validate_name(pod_id)}.", dir=self._root))
        (draft / TREE).mkdir(mode=0o700)
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def store_draft(
        self, pod_id: str, draft: Path, wanted: FilesToCopy, *, has_all: bool = False,
        skipped: Mapping[str, str] | None = None, failure: str = "",
    ) -> None:  # fmt: skip
        """Store the draft as the copy of the pod's files, unless there already is a copy.

        If the files could not be copied, `failure` is the reason and the draft is empty.
        """
        info = {"base": wanted.base, "skipped": dict(skipped or {}), "failure": failure, "has_all": has_all}
        (draft / TREE / wanted.base).mkdir(mode=0o700, parents=True, exist_ok=True)
        (draft / INFO).write_text(json.dumps(info))
        try:
            draft.rename(self._path(pod_id))
        except OSError:
            if not self.has_copy(pod_id):
                raise
        sync_directory(str(self._root))

    def delete_copy(self, pod_id: str) -> None:
        for path in (self._path(pod_id), *self._root.glob(f".{pod_id}.*")):
            shutil.rmtree(path, ignore_errors=True)

    def list_outputs(self, pod_id: str, paths: Collection[str]) -> PodFiles:
        tree, info = self._open(pod_id)
        base = info["base"]
        listing = reading.list_files(str(tree), base, paths)
        left_out = {
            path.removeprefix(f"{base}/"): reason
            for path, reason in info["skipped"].items()
            if any(f"{path}/".startswith(f"{base}/{each}/") for each in paths)
        }
        return _with_skipped_paths(listing, left_out)

    def read_output(self, pod_id: str, path: str, offset: int, limit: int) -> bytes:
        tree, info = self._open(pod_id)
        return reading.read_file(str(tree), info["base"], path, offset, limit)

    def list_retained(self, pod_id: str, path: str) -> PodFiles:
        roots, info = self._retained_roots(pod_id)
        listing = reading.list_files_below(roots, path)
        left_out = {
            each: reason
            for each, reason in info["skipped"].items()
            if not path or f"{each}/".startswith(f"{path.rstrip('/')}/")
        }
        return _with_skipped_paths(listing, left_out)

    def read_retained(self, pod_id: str, path: str, offset: int, limit: int) -> bytes:
        return reading.read_listed_file(self._retained_roots(pod_id)[0], path, offset, limit)

    def _retained_roots(self, pod_id: str) -> tuple[dict[str, tuple[str, str]], dict[str, Any]]:
        tree, info = self._open(pod_id)
        if not info["has_all"]:
            raise FilesNotFound(NOT_RETAINED)
        return {name: (str(tree), name) for name in (POD, WORKSPACE)}, info

    def _open(self, pod_id: str) -> tuple[Path, dict[str, Any]]:
        path = self._path(pod_id)
        try:
            info: dict[str, Any] = json.loads((path / INFO).read_text())
        except FileNotFoundError:
            raise FilesNotFound(NOT_COPIED) from None
        if info["failure"]:
            raise FilesNotFound(info["failure"])
        return path / TREE, info

    def _path(self, pod_id: str) -> Path:
        return self._root / validate_name(pod_id)


class CopiedFilesMixin:
    """Runtime mixin that reads the copied files of finished pods."""

    _files: FileCopies

    def list_files(self, pod_id: str, paths: Collection[str]) -> PodFiles:
        return self._files.list_outputs(pod_id, paths)

    def read_file(self, pod_id: str, path: str, offset: int, limit: int) -> bytes:
        return self._files.read_output(pod_id, path, offset, limit)

    def list_retained_files(self, pod_id: str, workspace: str, path: str) -> PodFiles:
        return self._files.list_retained(pod_id, path)

    def read_retained_file(self, pod_id: str, workspace: str, path: str, offset: int, limit: int) -> bytes:
        return self._files.read_retained(pod_id, path, offset, limit)

    def list_volume_changes(self, pod_id: str, volume: str) -> VolumeChanges:
        raise FilesNotFound(f"{volume} is an S3 volume, which Kubernetes pools do not support")

    def read_volume_file(self, pod_id: str, volume: str, path: str, offset: int, limit: int) -> bytes:
        raise FilesNotFound(f"{volume} is an S3 volume, which Kubernetes pools do not support")


def _with_skipped_paths(listing: PodFiles, left_out: Mapping[str, str]) -> PodFiles:
    """Return the listing with the paths in `left_out` added to its skipped paths, so that they are not
    treated as missing.
    """
    skipped = sorted({**listing.skipped, **left_out}.items())
    return PodFiles(listing.files, dict(skipped[: reading.SKIPPED_MAX]))
