"""Dependencies of a service pass: engine and router clients, leadership."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from berth.core.spec.service import ServiceSpec
from projects.models import Service
from projects.serving.base import EngineAdapter, RouterClient

Fence = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Ports:
    """Dependencies of a service pass.

    `engines` takes the kind and whether Berth manages the engine, because addresses given by users are
    restricted. `router` returns None for a service without a router. `fence` opens a transaction that holds
    the leadership.
    """

    engines: Callable[[str, bool], EngineAdapter]
    router: Callable[[Service, ServiceSpec], RouterClient | None]
    fence: Fence
