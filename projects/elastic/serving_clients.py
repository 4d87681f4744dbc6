"""HTTP clients for inference engines and routers, restricted to allowed networks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from berth.core.spec.sections.service import ServiceSpec
from projects.elastic.reconcile_context import Fence, ReconcileContext
from projects.models import InferenceEngine, Service
from projects.serving.addresses import (
    PRIVATE,
    THIS_MACHINE,
    AddressPolicy,
    InvalidAddress,
    normalize,
    resolve_addresses,
)
from projects.serving.base import EngineAdapter, ErrorKind, RouterClient, ServingError
from projects.serving.engines import engine_adapter
from projects.serving.http_client import HttpClient
from projects.serving.routers import SGLangRouter, StaticRouter


@dataclass(frozen=True, slots=True)
class ServingClients:
    """Clients for inference engines and routers.

    Engines that users add by address may have public addresses or addresses in `networks`. Engines on nodes
    of Berth's own pools may have any address.
    """

    networks: tuple[str, ...]
    own_ports: frozenset[int]
    routers: Path
    reload: tuple[str, ...] = ()

    def reconcile_context(self, fence: Fence) -> ReconcileContext:
        return ReconcileContext(engines=self.engines, router=self.router, fence=fence)

    def engines(self, kind: str, is_managed: bool) -> EngineAdapter:
        return _create_adapter(kind, HttpClient(self._address_policy(is_managed)))

    def router(self, service: Service, spec: ServiceSpec) -> RouterClient | None:
        if spec.router is None:
            return None
        if spec.router.kind == "static":
            name = f"berth_{service.workload.project.name}_{service.workload.name}"
            path = self.routers / f"{service.workload_id}.conf"
            return StaticRouter(
                path, name[:100], resolve=partial(self._resolve_engine_url, service), reload=self.reload
            )
        return SGLangRouter(
            HttpClient(self._address_policy(is_managed=False)),
            self._normalized_address(spec.router.url or ""),
        )

    def _resolve_engine_url(self, service: Service, url: str) -> tuple[str, ...]:
        managed = InferenceEngine.objects.filter(service=service, url=url, ended_at=None).exclude(
            origin="external"
        )
        return resolve_addresses(url, self._address_policy(managed.exists()))

    def _address_policy(self, is_managed: bool) -> AddressPolicy:
        networks: Sequence[str] = (*self.networks, *PRIVATE, *THIS_MACHINE) if is_managed else self.networks
        return AddressPolicy(tuple(dict.fromkeys(networks)), self.own_ports)

    def _normalized_address(self, url: str) -> str:
        try:
            return normalize(url)
        except InvalidAddress as error:
            raise ServingError(ErrorKind.FORBIDDEN, url, str(error)) from None


@lru_cache(maxsize=16)
def _create_adapter(kind: str, http_client: HttpClient) -> EngineAdapter:
    return engine_adapter(kind, http_client)
