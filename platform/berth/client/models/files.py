# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for files."""

from datetime import datetime

from berth.client.models.base import Model


class CodeTree(Model):
    tree: str = ""
    """ID for `code.tree` of a workload document."""
    size: int = 0
    """Size of all files in bytes."""
    files: int = 0
    """Number of files."""
    missing: list[str] = []
    """Chunks to upload before the request is repeated. If there are none, the tree is stored."""


class KeptFile(Model):
    """File of a failed pod. Paths begin with `pod`, `tmp`, `var-tmp` or `workspace`."""

    path: str = ""
    size: int = 0
    """In bytes."""


class OutputFile(Model):
    path: str = ""
    size: int = 0
    """In bytes."""


class PodOutputs(Model):
    """Files that a pod produced: its outputs, or its changes to a volume. `size` is in bytes."""

    pod: str = ""
    """ROLE-INDEX"""
    run: int = 0
    paths: list[str] = []
    """Declared paths. Empty for a volume."""
    volume: str | None = None
    """Writable volume in S3 that the changed files are stored in. None for declared outputs."""
    state: str = ""
    """`waiting` until the pod has ended and its files are stored; `failed` if they cannot be."""
    message: str = ""
    """Reason why files are not stored, or not stored yet."""
    skipped: dict[str, str] = {}
    """Reason for each path that was left out."""
    size: int = 0
    files: int = 0
    """Number of stored files."""
    deleted: int = 0
    """Number of objects that were deleted from the volume."""
    stored_at: datetime | None = None


class ProjectCode(Model):
    """Size of a project's stored code, and the limits on it. All values except `files_max` are in bytes."""

    size_max: int = 0
    files_max: int = 0
    stored: int = 0
    """Size in bytes of all code that the project has stored."""
    stored_max: int = 0
