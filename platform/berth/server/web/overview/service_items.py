"""Services that need attention because some of their inference engines cannot serve."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.urls import reverse

from berth.server.web.overview.items import AttentionItem
from projects.models import InferenceEngine, Phase, Service
from projects.web.services.serving import engine_status, serving_status

SERVICES_MAX = 200  # maximum number of services that are checked
STUCK_AFTER = timedelta(minutes=15)  # time after which an engine that is still starting needs attention
STARTING_STATES = ("CREATING", "CONNECTING", "HEALTH_CHECKING")
LEAVING_STATES = ("DRAINING", "REMOVING")  # states of engines that are removed on request


def degraded_service_items(services: QuerySet[Service], now: datetime) -> Iterator[AttentionItem]:
    """Yield an item for each running service with engines that cannot serve or take too long to start."""
    running = services.filter(workload__phase=Phase.RUNNING).order_by("workload__name", "pk")
    rows = list(running[:SERVICES_MAX])
    engines = InferenceEngine.objects.filter(service__in=rows, ended_at__isnull=True)
    by_service: dict[int, list[InferenceEngine]] = defaultdict(list)
    for engine in engines.select_related("workload") if rows else ():
        by_service[engine.service_id].append(engine)
    for service in rows:
        own = by_service[service.pk]
        if any(_cannot_serve(engine, now) for engine in own):
            status = serving_status(service.workload, own)
            yield AttentionItem(
                status.title, status.tone, service.workload.handle,
                reverse("service", args=[service.workload_id]),
                f"{status.count} engines serving, {status.causes}.", status.since,
            )  # fmt: skip


def _cannot_serve(engine: InferenceEngine, now: datetime) -> bool:
    """Return whether the engine cannot serve, or has been starting for too long."""
    status = engine_status(engine)
    if not status.cause or engine.state in LEAVING_STATES:
        return False
    may_wait = status.tone == "info" or engine.state in STARTING_STATES
    return not may_wait or engine.since <= now - STUCK_AFTER
