"""Find and read the changes that a finished pod made to its copy of an S3 volume."""

from __future__ import annotations

import json
from pathlib import Path

from pools.runtimes.files import reading
from pools.runtimes.files.base import FilesNotFound, VolumeChanges
from pools.runtimes.shim.transfers.copies import copy_record_path
from pools.runtimes.shim.transfers.volumes import DIRECTORY


def list_changes(directory: Path, volume: str) -> VolumeChanges:
    """Return the changes to a volume. `directory` is where the pod's records are. Raises FilesNotFound."""
    parent = directory / DIRECTORY
    try:
        record = Path(copy_record_path(str(parent / volume)))
        copied, since = json.loads(record.read_text("utf-8")), record.stat().st_ctime_ns
    except FileNotFoundError:  # the pod was stopped before its command could start
        return VolumeChanges()
    listing, existing_paths = reading.list_changed_files(str(parent), volume, since)
    deleted = tuple((path, etag) for path, etag in copied if path not in existing_paths)
    return VolumeChanges(listing.files, deleted, listing.skipped)


def read_file(directory: Path, volume: str, path: str, offset: int, limit: int) -> bytes:
    """Return at most `limit` bytes from `offset` in a file of the volume. Raises FilesNotFound."""
    if not path:
        raise FilesNotFound("the path is empty")
    return reading.read_file(str(directory / DIRECTORY), volume, path, offset, limit)
