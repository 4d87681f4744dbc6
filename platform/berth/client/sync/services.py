# Generated from berth/client/aio/services.py by `python -m berth.client.generate`; do not edit.
"""List and scale inference services, addressed by name, `project/name` or id."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from berth.client.http import json_content
from berth.client.models.services import (
    AutoscalerConditions,
    AutoscalerSettings,
    AutoscalerStatus,
    AutoscalingAction,
    InferenceEngine,
    ScaleAccepted,
    ScaleOutCancellation,
    ScaleRequest,
    Service,
    ServiceDetail,
)
from berth.client.models.workloads import Event
from berth.client.sync.transport import Transport

Direction = Literal["scale_out", "scale_in"]
POLL_SECONDS = 1.0


class Services:
    def __init__(self, transport: Transport, sleep: Callable[[float], None]) -> None:
        self._transport, self._sleep = transport, sleep

    def list(self, *, project: str | None = None, ended: bool | None = None) -> Iterator[Service]:
        for item in self._transport.iterate_items("services", {"project": project, "ended": ended}):
            yield Service.model_validate(item)

    def get(self, service: str) -> ServiceDetail:
        return ServiceDetail.model_validate(self._transport.get(_path(service)))

    def engines(self, service: str) -> Sequence[InferenceEngine]:
        response = self._transport.get(_path(service, "engines"))
        return [
            InferenceEngine.model_validate(engine)
            for model in response["models"].values()
            for engine in model["engines"]
        ]

    def scale_out(
        self,
        service: str,
        num_replicas: int = 0,
        *,
        engine_urls: Sequence[str] = (),
        timeout_secs: float | None = None,
    ) -> ScaleAccepted:
        """Scale out to a total number of engines, or add external engines by address.

        If an identical request is already active, that request is returned.
        """
        body = {"num_replicas": num_replicas, "engine_urls": [*engine_urls], "timeout_secs": timeout_secs}
        return ScaleAccepted.model_validate(self._transport.post(_path(service, "scale_out"), body))

    def scale_in(
        self,
        service: str,
        num_replicas: int = 0,
        *,
        engine_urls: Sequence[str] = (),
        force: bool = False,
        dry_run: bool = False,
        timeout_secs: float | None = None,
    ) -> ScaleAccepted:
        """Scale in to a total number of engines, or remove engines by address."""
        body = {
            "num_replicas": num_replicas, "engine_urls": [*engine_urls], "force": force, "dry_run": dry_run,
            "timeout_secs": timeout_secs,
        }  # fmt: skip
        return ScaleAccepted.model_validate(self._transport.post(_path(service, "scale_in"), body))

    def requests(
        self, service: str, direction: Direction, *, status: str | None = None
    ) -> Iterator[ScaleRequest]:
        for item in self._transport.iterate_items(_path(service, direction), {"status": status}):
            yield ScaleRequest.model_validate(item)

    def request(self, service: str, direction: Direction, request_id: str) -> ScaleRequest:
        return ScaleRequest.model_validate(self._transport.get(_path(service, direction, request_id)))

    def changes(self, service: str, direction: Direction, request_id: str) -> Iterator[ScaleRequest]:
        """Yield the request now and after each change of its status, until it has ended."""
        status = ""
        while True:
            request = self.request(service, direction, request_id)
            if request.status != status:
                status = request.status
                yield request
            if request.is_final:
                return
            self._sleep(POLL_SECONDS)

    def cancel(self, service: str, request_id: str) -> ScaleRequest:
        path = _path(service, "scale_out", request_id, "cancel")
        return ScaleRequest.model_validate(self._transport.post(path))

    def cancel_all(
        self, service: str, *, status: str | None = None, dry_run: bool = False
    ) -> ScaleOutCancellation:
        body = {"dry_run": dry_run, "status_filter": status}
        return ScaleOutCancellation.model_validate(
            self._transport.post(_path(service, "scale_out_cancel"), body)
        )

    def report_weight_update(self, service: str, updating: bool) -> None:
        """Report whether a trainer is currently updating the weights of the initial engines."""
        self._transport.post(_path(service, "weights"), {"updating": updating})

    def autoscaler(self, service: str) -> AutoscalerSettings:
        return AutoscalerSettings.model_validate(self._transport.get(_path(service, "autoscaler")))

    def configure(self, service: str, settings: Mapping[str, Any]) -> AutoscalerSettings:
        """Replace all settings. Omitted settings get their defaults."""
        response = self._transport.execute("PUT", _path(service, "autoscaler"), body=dict(settings))
        return AutoscalerSettings.model_validate(json_content(response))

    def enable(self, service: str, enabled: bool) -> AutoscalerStatus:
        path = _path(service, "autoscaler", "enable")
        return AutoscalerStatus.model_validate(self._transport.post(path, {"enabled": enabled}))

    def status(self, service: str) -> AutoscalerStatus:
        return AutoscalerStatus.model_validate(self._transport.get(_path(service, "autoscaler", "status")))

    def conditions(self, service: str) -> AutoscalerConditions:
        path = _path(service, "autoscaler", "conditions")
        return AutoscalerConditions.model_validate(self._transport.get(path))

    def failed_engines(self, service: str, *, limit: int | None = None) -> Iterator[Event]:
        """Yield an event for each engine that failed, newest first."""
        current = self.get(service)
        filters = {"workload": current.id, "kind": "engine_failed"}
        for item in self._transport.iterate_items("events", filters, limit):
            yield Event.model_validate(item)

    def history(
        self, service: str, *, limit: int = 100, action: Direction | None = None
    ) -> Sequence[AutoscalingAction]:
        path = _path(service, "autoscaler", "scale_history")
        response = self._transport.get(path, {"limit": limit, "action": action})
        return [AutoscalingAction.model_validate(item) for item in response["history"]]


def _path(service: str, *parts: str) -> str:
    return "/".join(["services", service.replace("/", "."), *parts])
