"""Run the inference service process until SIGTERM or SIGINT."""

import signal
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from berth.core.clock import SystemClock
from berth.server.tracing.spans import this_process_is
from projects.elastic.rounds import Rounds
from projects.elastic.wires import Calls


class Command(BaseCommand):
    requires_system_checks = []  # system checks load every page of the web process; `make check` runs them
    help = "Scales inference services and watches their engines. Any number may run; one leads."

    def handle(self, *args: Any, **options: Any) -> None:
        this_process_is("services")
        rounds = Rounds(clock=SystemClock(), ports=calls().ports)

        def end(number: int, frame: FrameType | None) -> None:
            rounds.end()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        rounds.run()


def calls() -> Calls:
    return Calls(
        networks=tuple(settings.BERTH_SERVICE_NETWORKS),
        own_ports=frozenset(settings.BERTH_OWN_PORTS),
        routers=Path(settings.BERTH_ROUTERS),
        reload=tuple(settings.BERTH_ROUTER_RELOAD),
    )
