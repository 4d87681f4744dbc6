"""Tests for Prometheus metrics about pending times, queues, services and deliveries."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from projects.models import Autoscaler, Delivery, InferenceEngine, Phase, Service
from tests import factories as make
from tests.cast import Cast
from tests.support.scraping import scraped

pytestmark = pytest.mark.django_db


def metric_values() -> dict[str, float]:
    lines = scraped().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_metrics_include_pending_workloads_by_reason_and_the_longest_pending_time(cast: Cast) -> None:
    for name, reason, minutes in (("a", "ProjectLimit", 5), ("b", "ProjectLimit", 90), ("c", "", 1)):
        make.workload(cast.vision, name, reason=reason, submitted_at=make.ago(minutes=minutes))
    make.workload(cast.vision, "over", phase=Phase.COMPLETED, submitted_at=make.ago(days=9))
    metrics = metric_values()
    assert metrics['berth_pending_by_reason{reason="ProjectLimit"}'] == 2
    assert metrics['berth_pending_by_reason{reason="NotSeenYet"}'] == 1
    assert metrics["berth_longest_wait_seconds"] == pytest.approx(5400, abs=30)


@pytest.mark.heavy
def test_pending_time_quantiles_cover_workloads_started_in_the_last_day(cast: Cast) -> None:
    other = make.pool("other")
    hour_ago = make.ago(hours=1)
    for pool, wait_seconds in ((cast.pool, (10, 20, 30)), (other, (600,))):
        for seconds in wait_seconds:
            make.workload(
                cast.vision, f"w{seconds}", pool=pool, phase=Phase.RUNNING, submitted_at=hour_ago,
                first_started_at=hour_ago + timedelta(seconds=seconds),
            )  # fmt: skip
    make.workload(
        cast.vision, "old", pool=other, phase=Phase.COMPLETED, submitted_at=make.ago(days=4),
        first_started_at=make.ago(days=2),
    )  # fmt: skip
    metrics = metric_values()
    assert metrics['berth_wait_seconds{pool="local",quantile="0.5"}'] == 20
    assert metrics['berth_wait_seconds{pool="local",quantile="0.95"}'] == 29
    assert metrics['berth_wait_seconds{pool="local",quantile="1.0"}'] == 30
    assert metrics['berth_wait_seconds{pool="other",quantile="1.0"}'] == 600


def test_queue_metrics_cover_quota_fair_share_and_demand(cast: Cast) -> None:
    make.queue_status(cast.vision, cast.pool, share=3.5, allocated=2, requested=6)
    make.queue_status(cast.research, cast.pool, share=4, allocated=2, requested=6)
    make.quota(cast.vision, cast.pool, 1.5)
    make.quota(cast.research, cast.pool, None)
    metrics = metric_values()
    of_project = 'department="research",pool="local",project="vision"'
    of_department = 'department="research",pool="local",project=""'
    assert metrics[f"berth_queue_share_gpus{{{of_project}}}"] == 3.5
    assert metrics[f"berth_queue_allocated_gpus{{{of_project}}}"] == 2
    assert metrics[f"berth_queue_requested_gpus{{{of_department}}}"] == 6
    assert metrics[f"berth_queue_quota_gpus{{{of_project}}}"] == 1.5
    assert f"berth_queue_quota_gpus{{{of_department}}}" not in metrics, "an unlimited quota is not exported"


@pytest.mark.heavy
def test_service_metrics_cover_engines_requests_and_missing_autoscaler_metrics(cast: Cast) -> None:
    workload = make.workload(cast.ads, "llm", phase=Phase.RUNNING, kind="service")
    service = Service.objects.create(workload=workload, role="engine", initial_engines=2, next_number=3)
    at = timezone.now()
    for number, (state, healthy, running) in enumerate(
        (("ACTIVE", True, 3), ("ACTIVE", False, None), ("CREATING", False, None), ("REMOVED", True, 9))
    ):
        InferenceEngine.objects.create(
            service=service, number=number, origin="initial", state=state, since=at, created_at=at,
            is_healthy=healthy, running=running, ended_at=at if state == "REMOVED" else None,
        )  # fmt: skip
    Autoscaler.objects.create(service=service, enabled=True, last_error="no metrics")
    metrics = metric_values()
    assert metrics['berth_service_engines{project="ads",service="llm",state="active"}'] == 2
    assert metrics['berth_service_engines{project="ads",service="llm",state="creating"}'] == 1
    assert not [name for name in metrics if 'state="removed"' in name]
    assert metrics['berth_service_engines_healthy{project="ads",service="llm"}'] == 1
    assert metrics['berth_service_requests{project="ads",service="llm"}'] == 3
    assert metrics['berth_service_autoscaler_missing_metrics{project="ads",service="llm"}'] == 1
    service.ended_at = at
    service.save()
    assert not [name for name in metric_values() if name.startswith("berth_service_")]


def test_metrics_include_queued_tasks_deliveries_and_the_version(cast: Cast) -> None:
    Delivery.objects.create(
        kind="failed", to="a@example.org", channel="mail", content={}, state="failed",
        next_attempt_at=timezone.now(), ended_at=timezone.now(),
    )  # fmt: skip
    metrics = metric_values()
    assert metrics['berth_deliveries{state="failed"}'] == 1
    assert metrics["berth_task_queue_length"] == 0
    assert any(re.fullmatch(r'berth_build_info\{version="[^"]+"\}', name) for name in metrics)
