# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for pool previews."""

from pydantic import Field

from berth.client.models.base import Model


class Amounts(Model):
    """GPUs, CPU cores and MiB of memory. None means unlimited."""

    gpu: float | None = None
    cpu: float | None = None
    memory_mib: int | None = None


class PreviewedNode(Model):
    name: str
    details: str = ""
    obstacle: str | None = None
    """Reason why the pool leaves the node out; None if it can be used."""
    gpu_model: str = ""
    total: Amounts = Field(default_factory=Amounts)
    free: Amounts = Field(default_factory=Amounts)
    """Resources that others do not use."""
    host_key: str | None = None
    """Public key that an SSH host presented; None if a key is pinned, or for other providers."""


class PreviewFinding(Model):
    severity: str = ""
    """`error`: the pool would not work."""
    message: str = ""
    remedy: str = ""


class PoolPreview(Model):
    """Nodes that the provider offers to a new pool, with findings about them."""

    source: str = ""
    """The system that was examined, for example a cluster with its version and address."""
    nodes: list[PreviewedNode] = []
    """The first 500 nodes."""
    nodes_total: int = 0
    nodes_usable: int = 0
    total: Amounts = Field(default_factory=Amounts)
    """Resources of the nodes that can be used."""
    free: Amounts = Field(default_factory=Amounts)
    """Resources of these nodes that are not used by others."""
    findings: list[PreviewFinding] = []
