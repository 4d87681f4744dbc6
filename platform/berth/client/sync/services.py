# Generated from berth/client/aio/services.py by `python -m berth.client.generate`; do not edit.
"""List and scale inference services, addressed by name, `project/name` or ID."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

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
from berth.client.sync.resource import Resource

Direction = Literal["scale_out", "scale_in"]
POLL_SECONDS = 1.0


class Services(Resource):
    def list(self, *, project: str | None = None, ended: bool | None = None) -> Iterator[Service]:
        return self._iterate(Service, "services", {"project": project, "ended": ended})

    def get(self, service: str) -> ServiceDetail:
        return self._get(ServiceDetail, _path(service))

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
        """Scale out to a total number of engines, or add external engines by URL.

        If an identical request is already active, that request is returned.
        """
        body = {"num_replicas": num_replicas, "engine_urls": [*engine_urls], "timeout_secs": timeout_secs}
        return self._post(ScaleAccepted, _path(service, "scale_out"), body)

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
        """Scale in to a total number of engines, or remove engines by URL."""
        body = {
            "num_replicas": num_replicas, "engine_urls": [*engine_urls], "force": force, "dry_run": dry_run,
            "timeout_secs": timeout_secs,
        }  # fmt: skip
        return self._post(ScaleAccepted, _path(service, "scale_in"), body)

    def requests(
        self, service: str, direction: Direction, *, status: str | None = None
    ) -> Iterator[ScaleRequest]:
        return self._iterate(ScaleRequest, _path(service, direction), {"status": status})

    def request(self, service: str, direction: Direction, request_id: str) -> ScaleRequest:
        return self._get(ScaleRequest, _path(service, direction, request_id))

    def changes(self, service: str, direction: Direction, request_id: str) -> Iterator[ScaleRequest]:
        """Yield a scale request now and whenever its status changes, until it has ended."""
        status = ""
        while True:
            request = self.request(service, direction, request_id)
            if request.status != status:
                status = request.status
                yield request
            if request.is_final:
                return
            self._transport.sleep(POLL_SECONDS)

    def cancel(self, service: str, request_id: str) -> ScaleRequest:
        path = _path(service, "scale_out", request_id, "cancel")
        return self._post(ScaleRequest, path)

    def cancel_scale_outs(
        self, service: str, *, status: str | None = None, dry_run: bool = False
    ) -> ScaleOutCancellation:
        body = {"dry_run": dry_run, "status_filter": status}
        return self._post(ScaleOutCancellation, _path(service, "scale_out_cancel"), body)

    def report_weight_update(self, service: str, updating: bool) -> None:
        """Tell the server whether a trainer is updating the weights of the initial engines."""
        self._transport.post(_path(service, "weights"), {"updating": updating})

    def autoscaler(self, service: str) -> AutoscalerSettings:
        return self._get(AutoscalerSettings, _path(service, "autoscaler"))

    def configure(self, service: str, settings: Mapping[str, Any]) -> AutoscalerSettings:
        """Replace all autoscaler settings of a service. Omitted settings are set to their defaults."""
        return self._send(AutoscalerSettings, "PUT", _path(service, "autoscaler"), body=dict(settings))

    def enable(self, service: str, enabled: bool) -> AutoscalerStatus:
        path = _path(service, "autoscaler", "enable")
        return self._post(AutoscalerStatus, path, {"enabled": enabled})

    def status(self, service: str) -> AutoscalerStatus:
        return self._get(AutoscalerStatus, _path(service, "autoscaler", "status"))

    def conditions(self, service: str) -> AutoscalerConditions:
        path = _path(service, "autoscaler", "conditions")
        return self._get(AutoscalerConditions, path)

    def failed_engines(self, service: str, *, limit: int | None = None) -> Iterator[Event]:
        """Yield an event for each engine that failed, newest first."""
        current = self.get(service)
        filters = {"workload": current.id, "kind": "engine_failed"}
        yield from self._iterate(Event, "events", filters, limit)

    def history(
        self, service: str, *, limit: int = 100, action: Direction | None = None
    ) -> Sequence[AutoscalingAction]:
        path = _path(service, "autoscaler", "scale_history")
        response = self._transport.get(path, {"limit": limit, "action": action})
        return [AutoscalingAction.model_validate(item) for item in response["history"]]


def _path(service: str, *parts: str) -> str:
    return "/".join(["services", service.replace("/", "."), *parts])
