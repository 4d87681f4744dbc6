# Generated from the OpenAPI document by `python -m berth.client.generate`; do not edit.
"""Response models for services."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model
from berth.client.models.mixins import ScaleRequestMixin, ServiceMixin


class AutoscalerCondition(Model):
    type: str = ""
    triggered: bool = False
    met: bool | None = None
    """Whether the condition is met now; None if too few engines report."""
    value: float | None = None
    threshold: float = 0
    duration_secs: float = 0
    held_secs: float = 0
    since: float | None = None
    reporting: int = 0


class AutoscalerConditions(Model):
    conditions: dict[str, AutoscalerCondition] = {}
    metrics: dict[str, Any] = {}


class AutoscalerSettings(Model):
    enabled: bool = False
    settings: dict[str, Any] = {}


class ScaleDecision(Model):
    action: str = ""
    delta: int = 0
    reason: str = ""


class AutoscalerStatus(Model):
    enabled: bool = False
    running: bool = False
    current_engines: int = 0
    min_engines: int = 0
    max_engines: int = 0
    last_scale_time: float | None = None
    last_scale_action: str | None = None
    last_decision: ScaleDecision | None = None
    pending_requests: list[str] = []
    recent_metrics: dict[str, Any] = {}
    error: str = ""


class AutoscalingAction(Model):
    """Scaling action of an autoscaler."""

    request_id: str | None = None
    action: str = ""
    status: str = ""
    triggered_at: float = 0
    completed_at: float | None = None
    from_engines: int = 0
    to_engines: int = 0
    delta: int = 0
    reason: str = ""
    triggered_conditions: list[str] = []
    metrics_snapshot: dict[str, Any] = {}
    error_message: str | None = None


class InferenceEngine(Model):
    engine_id: str = ""
    url: str = ""
    status: str = ""
    is_healthy: bool = False
    origin: str = ""
    node: str | None = None
    gpus: float = 0
    weight_version: str | None = None
    weight_sync: str = ""
    running_requests: int | None = None
    in_router: bool = False
    workload_id: str | None = None
    message: str = ""


class ScaleAccepted(Model):
    """Response to a scale request or a dry run."""

    request_id: str | None = None
    """None for a dry run."""
    status: str = ""
    message: str = ""
    engine_ids: list[str] = []
    """Engines that a scale-in removes."""
    engine_urls: list[str] = []


class CancelledScaleOut(Model):
    request_id: str = ""
    status: str = ""


class ScaleOutCancellation(Model):
    dry_run: bool = False
    status_filter: str | None = None
    cancelled: list[CancelledScaleOut] = []
    count: int = 0
    message: str = ""


class FailedEngine(Model):
    engine_id: str = ""
    url: str = ""
    failure: str = ""
    message: str = ""


class ScaleStep(Model):
    status: str = ""
    at: float = 0
    message: str = ""


class PendingEngine(Model):
    """Engine that is still being created, with the state of its workload."""

    engine_id: str = ""
    workload_id: str = ""
    workload: str = ""
    phase: str = ""
    reason: str = ""
    message: str = ""


class ScaleRequest(ScaleRequestMixin, Model):
    request_id: str = ""
    direction: str = ""
    mode: str = ""
    status: str = ""
    model_name: str = ""
    num_replicas: int = 0
    engine_urls: list[str] = []
    engine_ids: list[str] = []
    failed_engines: list[FailedEngine] = []
    created_at: float = 0
    updated_at: float = 0
    deadline: float = 0
    error_message: str | None = None
    failure: str | None = None
    weight_version: str | None = None
    force: bool = False
    requested_by: str = ""
    reason: str = ""
    steps: list[ScaleStep] = []
    pending: list[PendingEngine] = []


class ActiveScaleRequest(Model):
    request_id: str = ""
    direction: str = ""
    status: str = ""
    num_replicas: int = 0


class Service(ServiceMixin, Model):
    id: str
    name: str
    project: str = ""
    department: str = ""
    phase: str = ""
    model_name: str = ""
    engine: str = ""
    initial_engines: int = 0
    total_engines: int = 0
    active_engines: int = 0
    autoscaler_enabled: bool = False
    weight_version: str | None = None
    weights_updating: bool = False
    request: ActiveScaleRequest | None = None
    created_at: datetime
    ended_at: datetime | None = None


class ServiceDetail(Service):
    settings: dict[str, Any] = {}
