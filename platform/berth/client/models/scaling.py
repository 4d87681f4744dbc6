# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for scaling."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model
from berth.client.models.pools import NodePool


class DrainingNode(Model):
    """Node to drain, chosen by its current work. The choice may change before the drain starts."""

    node: str = ""
    pods: int = 0
    not_preemptible: int = 0
    """Non-preemptible pods. The drain waits for them without a time limit."""
    gpu_seconds_lost: int = 0
    """GPU-seconds of work since the start or the last checkpoint."""
    work: list[str] | None = None
    """Workloads with pods on the node; None unless you are a platform admin."""
    blocked_by: str = ""
    """Disruption budget that blocks the drain; empty if there is none."""


class ScalePreview(Model):
    nodes_desired: int = 0
    nodes: int = 0
    """Previewed number of nodes."""
    draining_count: int = 0
    draining: list[DrainingNode] = []
    """First 500 nodes to drain, in order."""
    blocked: list[str] = []
    """Actions that a disruption budget blocks now."""


class ScaledPool(NodePool):
    draining_count: int = 0
    draining: list[DrainingNode] = []
    """First 500 nodes to drain, in order."""


class ScalingEvent(Model):
    id: int
    at: datetime
    kind: str = ""
    node: str | None = None
    before: int | None = None
    after: int | None = None
    reason: str = ""
    data: dict[str, Any] = {}
