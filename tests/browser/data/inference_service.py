"""Browser test data: an inference service that is scaling out."""

import math
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from pools.models import NodePool
from projects.actor import Actor
from projects.engine.replicas.conditions import add_sample, compute_metrics
from projects.engine.replicas.readings import Histogram, MetricReading, MetricsSample, SampleWindow
from projects.engine.replicas.storing import metrics_to_json, to_json
from projects.models import (
    Autoscaler,
    InferenceEngine,
    MetricsPoint,
    Pod,
    ScaleRequest,
    ScaleStep,
    Scaling,
    Service,
    Workload,
)
from projects.services import workloads
from projects.services.inference.autoscalers import load_config
from scheduler.models import Allocation
from tests import factories as make
from tests.browser.data.decisions import create_service_start
from tests.browser.data.pools.measurements import create_points
from tests.browser.data.workloads.evaluation import evaluate

DOCUMENT: dict[str, Any] = {
    "name": "chat-70b",
    "kind": "service",
    "command": "python -m sglang.launch_server --port $BERTH_PORT",
    "roles": [{"name": "engine", "replicas": 2, "gpu": 1}],
    "service": {
        "model_name": "llama-70b", "router": {"kind": "sglang", "url": "http://router.example.org:30000"},
        "weight_sync": True,
        # A long interval, so that the samples remain recent while screenshots are taken.
        "autoscaler": {"min_engines": 2, "max_engines": 8, "metrics_interval_secs": 60},
    },
}  # fmt: skip


def create_service(scene: Any) -> Workload:
    now = timezone.now()
    dave = Actor.for_user(scene.people["dave"])
    pool = _serving_pool(scene)
    row = workloads.submit(actor=dave, document={**DOCUMENT, "project": "vision", "pools": [pool.name]})
    started = now - timedelta(hours=5)
    Workload.objects.filter(pk=row.pk).update(
        phase="running", reason="Running", message="All required pods are running.",
        since=started, started_at=started, first_started_at=started,
        submitted_at=started - timedelta(minutes=2), run=1,
    )  # fmt: skip
    service = Service.objects.get(workload=row)
    Service.objects.filter(pk=service.pk).update(weight_version="step-1200", next_number=6)
    _engines(service, pool, now)
    create_service_start(row, minutes=300)
    _requests(service, now)
    _metrics(service, now)
    evaluate()
    return row


def _serving_pool(scene: Any) -> NodePool:
    pool = make.pool(
        "serve",
        gpus=4,
        nodes_min=1,
        nodes_max=2,
        nodes_desired=2,
        gpu_model="L40S",
        ticked_at=make.ago(seconds=5),
    )
    NodePool.objects.filter(pk=pool.pk).update(created_at=make.ago(hours=30))
    node = make.node(pool, since=make.ago(hours=28), created_at=make.ago(hours=28.1))
    make.scaling(pool, "ready", "ready after 120 s", at=make.ago(hours=28), node=node)
    make.quota(scene.departments["research"], pool, 8)
    make.quota(scene.projects["vision"], pool, 6)
    return pool


def _engines(service: Service, pool: NodePool, now: datetime) -> None:
    started, node = now - timedelta(hours=5), pool.nodes.get()
    initial = Workload.objects.get(pk=service.workload_id)
    for engine in service.engines.all():
        pod = make.place(initial, node, [engine.number], role="engine")
        _serve(engine, pod, started)
    child = workloads.submit(
        actor=Actor.system("services"), project=service.workload.project,
        document={
            "name": "chat-70b-e4", "kind": "service", "command": "true", "pools": [pool.name],
            "roles": [{"name": "engine", "replicas": 1, "gpu": 1}],
        },
    )  # fmt: skip
    Workload.objects.filter(pk=child.pk).update(
        submitted_by=service.workload.submitted_by,
        submitted_at=now - timedelta(minutes=2),
        since=now - timedelta(minutes=2),
        pending_since=now - timedelta(minutes=2),
    )
    for number in (2, 3):
        added = now - timedelta(minutes=40)
        workload = make.workload(
            service.workload.project, f"chat-70b-e{number}", phase="running", kind="service", priority=80,
            pools=[pool.name], by=service.workload.submitted_by, run=1,
            started_at=added, since=added, submitted_at=added, message="1 of 1 pods running.",
        )  # fmt: skip
        engine = InferenceEngine.objects.create(
            service=service, number=number, origin="managed", state="CREATING", since=now, created_at=now,
            workload=workload,
        )  # fmt: skip
        _serve(engine, make.place(workload, node, [number]), added)
    InferenceEngine.objects.create(
        service=service, number=4, origin="managed", state="CREATING", since=now - timedelta(minutes=2),
        created_at=now - timedelta(minutes=2), workload=child,
    )  # fmt: skip
    syncing = InferenceEngine.objects.create(
        service=service, number=5, origin="external", state="WEIGHT_SYNCING", since=now, created_at=now,
        url="http://198.51.100.10:30000", sync="copying",
    )  # fmt: skip
    InferenceEngine.objects.filter(pk=syncing.pk).update(
        is_healthy=True, router_url=syncing.url, is_routed=True
    )


def _serve(engine: InferenceEngine, pod: Pod, since: datetime) -> None:
    url = f"http://10.0.4.11:{23001 + engine.number}"
    Allocation.objects.filter(pod=pod).update(bound_at=since)
    pod.allocation.bound_at = since
    create_points(make.used(pod, 74 + 3 * engine.number), engine.number, timezone.now())
    InferenceEngine.objects.filter(pk=engine.pk).update(
        state="ACTIVE", since=since, url=url, is_healthy=True, router_url=url, is_routed=True,
        weight_version="step-1200", pod_id=pod.pk,
    )  # fmt: skip


def _requests(service: Service, now: datetime) -> None:
    done = _request(service, now - timedelta(minutes=41), "ACTIVE", 4, by_autoscaler=True)
    Scaling.objects.create(
        service=service, request=done, action="scale_out", status="ACTIVE", triggered_at=done.created_at,
        completed_at=now - timedelta(minutes=39), from_engines=2, to_engines=4, delta=2, reason=done.reason,
    )  # fmt: skip
    running = _request(service, now - timedelta(minutes=2), "CREATING", 6)
    InferenceEngine.objects.filter(service=service, number__gte=4).update(added_by=running)
    for back, status in ((120, "PENDING"), (119, "CREATING")):
        ScaleStep.objects.create(request=running, at=now - timedelta(seconds=back), status=status)


def _request(
    service: Service, at: datetime, status: str, to: int, *, by_autoscaler: bool = False
) -> ScaleRequest:
    final = status == "ACTIVE"
    return ScaleRequest.objects.create(
        service=service, direction="scale_out", mode="managed", status=status, model_name="llama-70b",
        num_replicas=to, timeout_secs=1800, policy="rollback_all", by_autoscaler=by_autoscaler,
        requested_by="autoscaler" if by_autoscaler else "dave", created_at=at, updated_at=at,
        reason="Conditions met: token_usage_high, queue_backlog" if by_autoscaler else "",
        ended_at=at + timedelta(minutes=2) if final else None, deadline=at + timedelta(minutes=30),
    )  # fmt: skip


def _metrics(service: Service, now: datetime) -> None:
    config, window = load_config(service.autoscaler), SampleWindow()
    for number in range(120):
        at = now - timedelta(seconds=30 * (119 - number))
        engines = tuple(f"engine_{n}" for n in range(2 if number < 40 else 4))
        readings = (
            () if 70 <= number < 73 else tuple(_reading(name, number, len(engines)) for name in engines)
        )
        window = add_sample(window, MetricsSample(at.timestamp(), engines, readings), config)
        MetricsPoint.objects.create(
            service=service, at=at, engines=len(engines), reporting=len(readings),
            values=metrics_to_json(compute_metrics(window, config)),
        )  # fmt: skip
    decision = {"action": "none", "delta": 0, "reason": "another scale request is in progress"}
    Autoscaler.objects.filter(service=service).update(
        scraped_at=now, evaluated_at=now, last_decision=decision, memory=to_json(window)
    )


def _reading(name: str, number: int, engines: int) -> MetricReading:
    # The load rises and falls like a wave. Its last peak was a minute ago.
    wave = 0.5 + 0.43 * math.cos((number - 117) / 14)
    return MetricReading(
        name,
        token_usage=round(wave, 3),
        queued=float(max(0, round((160 if engines == 2 else 60) * (wave - 0.5) / engines))),
        running=10.0,
        throughput=1800.0 + 20 * math.sin(number),
        queue_time=_latencies(number, 6 * wave),
        first_token=_latencies(number, 8 * wave),
    )


def _latencies(number: int, highest: float) -> Histogram:
    bounds = [step / 4 for step in range(1, 41)]
    share = [min(1.0, bound / max(0.25, highest)) for bound in bounds]
    return Histogram(
        (
            *((bound, 20 * number * part) for bound, part in zip(bounds, share, strict=True)),
            (math.inf, 20.0 * number),
        )
    )
