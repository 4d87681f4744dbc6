"""Inference services and their autoscalers."""

from datetime import datetime
from typing import Any

from berth.client.models.base import Model

FINAL = ("ACTIVE", "PARTIAL", "COMPLETED", "NOOP", "FAILED", "CANCELLED")


class ActiveScaleRequest(Model):
    request_id: str
    direction: str
    status: str
    num_replicas: int = 0


class InferenceService(Model):
    id: str
    name: str
    project: str
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
    created_at: datetime | None = None
    ended_at: datetime | None = None
    settings: dict[str, Any] = {}

    @property
    def handle(self) -> str:
        return f"{self.project}/{self.name}"


class ServiceEngine(Model):
    engine_id: str
    url: str = ""
    status: str = ""
    is_healthy: bool = False
    origin: str = ""
    node: str | None = None
    gpus: float = 0
    weight_version: str | None = None
    running_requests: int | None = None
    in_router: bool = False
    message: str = ""


class ScaleAccepted(Model):
    """Accepted scale request; `request_id` is None for a dry run.

    `engine_ids` lists the engines to remove.
    """

    request_id: str | None
    status: str
    message: str = ""
    engine_ids: list[str] = []
    engine_urls: list[str] = []


class ScaleRequest(Model):
    request_id: str
    direction: str
    status: str
    mode: str = ""
    model_name: str = ""
    num_replicas: int = 0
    engine_urls: list[str] = []
    engine_ids: list[str] = []
    failed_engines: list[dict[str, Any]] = []
    created_at: float = 0
    updated_at: float = 0
    error_message: str | None = None
    failure: str | None = None
    weight_version: str | None = None
    requested_by: str = ""
    reason: str = ""
    steps: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []

    @property
    def is_final(self) -> bool:
        return self.status in FINAL


class ScaleOutCancellation(Model):
    dry_run: bool
    count: int
    message: str = ""
    cancelled: list[dict[str, Any]] = []


class AutoscalerSettings(Model):
    enabled: bool
    settings: dict[str, Any] = {}


class AutoscalerStatus(Model):
    enabled: bool
    running: bool = False
    current_engines: int = 0
    min_engines: int = 0
    max_engines: int = 0
    last_scale_time: float | None = None
    last_scale_action: str | None = None
    last_decision: dict[str, Any] | None = None
    pending_requests: list[str] = []
    recent_metrics: dict[str, Any] = {}
    error: str = ""


class AutoscalerConditions(Model):
    conditions: dict[str, dict[str, Any]] = {}
    metrics: dict[str, Any] = {}


class AutoscalingAction(Model):
    """Scaling action of an autoscaler."""

    request_id: str | None
    action: str
    status: str
    triggered_at: float
    completed_at: float | None = None
    from_engines: int = 0
    to_engines: int = 0
    delta: int = 0
    reason: str = ""
    triggered_conditions: list[str] = []
    metrics_snapshot: dict[str, Any] = {}
    error_message: str | None = None
