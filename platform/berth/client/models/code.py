# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for code."""

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


class ProjectCode(Model):
    """Size of a project's stored code, and its limits. All values except `files_max` are in bytes."""

    size_max: int = 0
    files_max: int = 0
    stored: int = 0
    """Size in bytes of all code that the project has stored."""
    stored_max: int = 0
