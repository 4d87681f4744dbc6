"""Run the process for services and schedules until SIGTERM or SIGINT."""

import signal
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from berth.core.clock import SystemClock
from berth.server.tracing.spans import set_process_name
from projects.elastic.rounds import ServiceLoop
from projects.elastic.serving_clients import ServingClients


class Command(BaseCommand):
    requires_system_checks = []  # `make check` runs the system checks, which would load all pages here
    help = "Scale inference services, and submit scheduled runs. Several processes may run; one leads."

    def handle(self, *args: Any, **options: Any) -> None:
        set_process_name("services")
        rounds = ServiceLoop(clock=SystemClock(), build_reconcile_context=build_clients().reconcile_context)

        def end(number: int, frame: FrameType | None) -> None:
            rounds.end()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        rounds.run()


def build_clients() -> ServingClients:
    return ServingClients(
        networks=tuple(settings.BERTH_SERVICE_NETWORKS),
        own_ports=frozenset(settings.BERTH_OWN_PORTS),
        routers=Path(settings.BERTH_ROUTERS),
        reload=tuple(settings.BERTH_ROUTER_RELOAD),
    )
