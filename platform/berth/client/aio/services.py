"""List and scale inference services, addressed by name, `project/name` or ID."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from berth.client.aio.resource import AsyncResource
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

Direction = Literal["scale_out", "scale_in"]
POLL_SECONDS = 1.0


class AsyncServices(AsyncResource):
    def list(self, *, project: str | None = None, ended: bool | None = None) -> AsyncIterator[Service]:
        return self._iterate(Service, "services", {"project": project, "ended": ended})

    async def get(self, service: str) -> ServiceDetail:
        return await self._get(ServiceDetail, _path(service))

    async def engines(self, service: str) -> Sequence[InferenceEngine]:
        response = await self._transport.get(_path(service, "engines"))
        return [
            InferenceEngine.model_validate(engine)
            for model in response["models"].values()
            for engine in model["engines"]
        ]

    async def scale_out(
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
        return await self._post(ScaleAccepted, _path(service, "scale_out"), body)

    async def scale_in(
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
        return await self._post(ScaleAccepted, _path(service, "scale_in"), body)

    def requests(
        self, service: str, direction: Direction, *, status: str | None = None
    ) -> AsyncIterator[ScaleRequest]:
        return self._iterate(ScaleRequest, _path(service, direction), {"status": status})

    async def request(self, service: str, direction: Direction, request_id: str) -> ScaleRequest:
        return await self._get(ScaleRequest, _path(service, direction, request_id))

    async def changes(
        self, service: str, direction: Direction, request_id: str
    ) -> AsyncIterator[ScaleRequest]:
        """Yield a scale request now and whenever its status changes, until it has ended."""
        status = ""
        while True:
            request = await self.request(service, direction, request_id)
            if request.status != status:
                status = request.status
                yield request
            if request.is_final:
                return
            await self._transport.sleep(POLL_SECONDS)

    async def cancel(self, service: str, request_id: str) -> ScaleRequest:
        path = _path(service, "scale_out", request_id, "cancel")
        return await self._post(ScaleRequest, path)

    async def cancel_scale_outs(
        self, service: str, *, status: str | None = None, dry_run: bool = False
    ) -> ScaleOutCancellation:
        body = {"dry_run": dry_run, "status_filter": status}
        return await self._post(ScaleOutCancellation, _path(service, "scale_out_cancel"), body)

    async def report_weight_update(self, service: str, updating: bool) -> None:
        """Tell the server whether a trainer is updating the weights of the initial engines."""
        await self._transport.post(_path(service, "weights"), {"updating": updating})

    async def autoscaler(self, service: str) -> AutoscalerSettings:
        return await self._get(AutoscalerSettings, _path(service, "autoscaler"))

    async def configure(self, service: str, settings: Mapping[str, Any]) -> AutoscalerSettings:
        """Replace all autoscaler settings of a service. Omitted settings are set to their defaults."""
        return await self._send(AutoscalerSettings, "PUT", _path(service, "autoscaler"), body=dict(settings))

    async def enable(self, service: str, enabled: bool) -> AutoscalerStatus:
        path = _path(service, "autoscaler", "enable")
        return await self._post(AutoscalerStatus, path, {"enabled": enabled})

    async def status(self, service: str) -> AutoscalerStatus:
        return await self._get(AutoscalerStatus, _path(service, "autoscaler", "status"))

    async def conditions(self, service: str) -> AutoscalerConditions:
        path = _path(service, "autoscaler", "conditions")
        return await self._get(AutoscalerConditions, path)

    async def failed_engines(self, service: str, *, limit: int | None = None) -> AsyncIterator[Event]:
        """Yield an event for each engine that failed, newest first."""
        current = await self.get(service)
        filters = {"workload": current.id, "kind": "engine_failed"}
        async for item in self._iterate(Event, "events", filters, limit):
            yield item

    async def history(
        self, service: str, *, limit: int = 100, action: Direction | None = None
    ) -> Sequence[AutoscalingAction]:
        path = _path(service, "autoscaler", "scale_history")
        response = await self._transport.get(path, {"limit": limit, "action": action})
        return [AutoscalingAction.model_validate(item) for item in response["history"]]


def _path(service: str, *parts: str) -> str:
    return "/".join(["services", service.replace("/", "."), *parts])
