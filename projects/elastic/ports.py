"""Ports of a service pass: engine and router clients, leadership."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from berth.core.spec.service import ServiceSpec
from projects.models import Service
from projects.serving.base import EngineAdapter, RouterClient

Fence = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Ports:
    """`engines` is told the kind, and whether the engine is ours: what people name by its address is called
    with more care. `router` answers None for a service without one. `fence` opens a transaction in which we
    still lead."""

    engines: Callable[[str, bool], EngineAdapter]
    router: Callable[[Service, ServiceSpec], RouterClient | None]
    fence: Fence
