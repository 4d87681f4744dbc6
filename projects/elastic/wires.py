"""HTTP access to engines and routers within the installation's limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from berth.core.spec.service import ServiceSpec
from projects.elastic.ports import Fence, Ports
from projects.models import InferenceEngine, Service
from projects.serving.addresses import (
    PRIVATE,
    THIS_MACHINE,
    BadAddress,
    Reach,
    checked_addresses,
    normalize,
)
from projects.serving.base import EngineAdapter, ErrorKind, RouterClient, ServingError
from projects.serving.engines import engines
from projects.serving.routers import SGLangRouter, StaticList
from projects.serving.wire import Wire


@dataclass(frozen=True, slots=True)
class Calls:
    """Clients for engines and routers.

    `networks` may be called in addition to public ones, for engines given by address. Engines on nodes of our
    pools may be called at any address, including this machine.
    """

    networks: tuple[str, ...]
    own_ports: frozenset[int]
    routers: Path
    reload: tuple[str, ...] = ()

    def ports(self, fence: Fence) -> Ports:
        return Ports(engines=self.engines, router=self.router, fence=fence)

    def engines(self, kind: str, is_ours: bool) -> EngineAdapter:
        return _adapter(kind, Wire(self._reach(is_ours)))

    def router(self, service: Service, spec: ServiceSpec) -> RouterClient | None:
        if spec.router is None:
            return None
        if spec.router.kind == "static":
            name = f"berth_{service.workload.project.name}_{service.workload.name}"
            path = self.routers / f"{service.workload_id}.conf"
            return StaticList(path, name[:100], resolve=partial(self._resolve, service), reload=self.reload)
        return SGLangRouter(Wire(self._reach(is_ours=False)), self._address(spec.router.url or ""))

    def _resolve(self, service: Service, url: str) -> tuple[str, ...]:
        own = InferenceEngine.objects.filter(service=service, url=url, ended_at=None).exclude(
            origin="external"
        )
        return checked_addresses(url, self._reach(own.exists()))

    def _reach(self, is_ours: bool) -> Reach:
        networks: Sequence[str] = (*self.networks, *PRIVATE, *THIS_MACHINE) if is_ours else self.networks
        return Reach(tuple(dict.fromkeys(networks)), self.own_ports)

    def _address(self, url: str) -> str:
        try:
            return normalize(url)
        except BadAddress as error:
            raise ServingError(ErrorKind.FORBIDDEN, url, str(error)) from None


@lru_cache(maxsize=16)
def _adapter(kind: str, wire: Wire) -> EngineAdapter:
    return engines(kind, wire)
