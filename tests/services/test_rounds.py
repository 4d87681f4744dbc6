"""Tests for the interval at which the service process runs each service."""

import time
from concurrent.futures import ThreadPoolExecutor

from projects.elastic.rounds import EMPTY_SECONDS, ServiceLoop
from projects.models import Service
from tests.services.stage import ServiceStage


def test_ended_service_is_no_longer_processed(stage: ServiceStage) -> None:
    service, clock = stage.serve(), stage.stage.clock
    rounds = ServiceLoop(
        clock=clock,
        build_reconcile_context=lambda fence: stage.reconcile_context,
        held=stage.held,
        _renewed=time.monotonic(),
    )
    with ThreadPoolExecutor(1) as rounds._threads:
        rounds.step("start")
    assert rounds._due.keys() == {service.pk}
    rounds._due[service.pk] = 0.0  # overdue
    Service.objects.filter(pk=service.pk).update(ended_at=clock.now())
    with ThreadPoolExecutor(1) as rounds._threads:
        assert rounds.step("tick") == EMPTY_SECONDS
    assert (rounds._due, rounds._passes) == ({}, {})
