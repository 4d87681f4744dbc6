"""Dependencies of a service pass: clients for inference engines and routers, and the leadership fence."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from berth.core.spec.sections.service import ServiceSpec
from projects.models import Service
from projects.serving.base import EngineAdapter, RouterClient

Fence = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """Interfaces used to reconcile a service.

    `engines` takes the kind of an inference engine and whether Berth manages it. `router` returns None for a
    service without a router. `fence` opens a transaction that commits only if this process is still the
    leader.
    """

    engines: Callable[[str, bool], EngineAdapter]
    router: Callable[[Service, ServiceSpec], RouterClient | None]
    fence: Fence
