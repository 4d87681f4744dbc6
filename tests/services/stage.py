"""A service in the database with the real scheduler and simulated inference engines."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from berth.db.loops import lease
from berth.db.loops.lease import HeldLease, fenced_transaction
from pools.runtimes.base import PodCause
from projects.elastic.reconcile_context import ReconcileContext
from projects.elastic.step import live_services, run_pass
from projects.models import InferenceEngine, ScaleRequest, Service, Workload
from projects.services import workloads
from projects.services.inference import requests
from projects.services.inference.rules import ScaleParameters
from projects.serving.base import Identity
from tests.cast import make_cast
from tests.fakes.serving import Fail, FakeEngine, FakeEngines, FakeRouter
from tests.scheduler.stage import Stage

MAX_TICKS = 80
IDLE_AT_MOST = timedelta(seconds=30)  # restarts and time limits need ticks even without a change
VERSIONS = """
    SELECT 'workload', id::text, xmin::text, ctid::text FROM projects_workload
    UNION ALL SELECT 'pod', id::text, xmin::text, ctid::text FROM projects_pod
     ORDER BY 1, 2
"""


def document(name: str = "chat", engines: int = 1, gpu: float = 1, **service: Any) -> dict[str, Any]:
    settings = {"router": {"kind": "sglang", "url": "http://router.example.org:3000"}, **service}
    return {
        "name": name,
        "kind": "service",
        "command": "serve --port $BERTH_PORT",
        "roles": [{"name": "engine", "replicas": engines, "gpu": gpu}],
        "service": settings,
    }


@dataclass
class ServiceStage:
    """A stage for a service.

    If `answers` is True, engines respond at the addresses of their running processes.
    """

    stage: Stage
    engines: FakeEngines = field(default_factory=FakeEngines)
    router: FakeRouter = field(default_factory=FakeRouter)
    answers: bool = True
    weights: str = "1"
    held: HeldLease = field(init=False)
    idle_since: datetime | None = None  # time of the scheduler's last tick, if the tick changed nothing
    versions: list[tuple[str, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lead("first")

    def lead(self, holder: str) -> None:
        held = lease.acquire("services", holder, 60)
        assert held is not None
        self.held = held

    @property
    def reconcile_context(self) -> ReconcileContext:
        def fence() -> AbstractContextManager[None]:
            return fenced_transaction(self.held)

        return ReconcileContext(
            engines=lambda kind, ours: self.engines,
            router=lambda service, spec: None if spec.router is None else self.router,
            fence=fence,
        )

    def serve(self, name: str = "chat", engines: int = 1, **service: Any) -> Service:
        """Create a service and wait until its initial engines are active."""
        created = self.submit(name, engines, **service)
        self.until(lambda: self.states(created) == ["ACTIVE"] * engines)
        return created

    def submit(self, name: str = "chat", engines: int = 1, **service: Any) -> Service:
        cast = self.stage.cast
        row = workloads.submit(
            actor=cast.dave, document=document(name, engines, **service), project=cast.vision,
            now=self.stage.clock.now(),
        )  # fmt: skip
        return Service.objects.get(workload=row)

    def scale_out(self, service: Service, **parameters: Any) -> ScaleRequest:
        accepted = requests.scale_out(
            actor=self.stage.cast.dave,
            service=service,
            parameters=ScaleParameters(**parameters),
            now=self.stage.clock.now(),
        )
        assert accepted.request is not None
        return accepted.request

    def scale_in(self, service: Service, **parameters: Any) -> ScaleRequest:
        accepted = requests.scale_in(
            actor=self.stage.cast.dave,
            service=service,
            parameters=ScaleParameters(**parameters),
            now=self.stage.clock.now(),
        )
        assert accepted.request is not None
        return accepted.request

    def cancel(self, request: ScaleRequest) -> ScaleRequest:
        return requests.cancel(
            actor=self.stage.cast.dave, request=self.reload(request), now=self.stage.clock.now()
        )

    def lose(self, workload: Workload) -> None:
        for pod in self.stage.pods(workload, "running"):
            self.stage.runtime.end(str(pod.pk), cause=PodCause.LOST, message="the machine is gone")

    def reject_registrations(self) -> None:
        self.router.always("register", Fail(message="the router is full"))

    def tick(self, times: int = 1, seconds: float = 1) -> None:
        """Tick the scheduler, sync the engines, process every service once and advance the clock."""
        for _ in range(times):
            self.tick_scheduler()
            self.sync_engines()
            self.step_services()
            self.stage.clock.advance(seconds)

    def tick_scheduler(self) -> None:
        """Tick the scheduler if its last tick changed something or a workload or pod has changed since.

        As in the scheduler process, the slow last step runs once nothing else changes.
        """
        now = self.stage.clock.now()
        unchanged = not self.have_pods_changed() and self.row_versions() == self.versions
        idle_since = self.idle_since
        if unchanged and idle_since is not None and idle_since <= now < idle_since + IDLE_AT_MOST:
            return
        changed = self.stage.loop.tick(reconcile=False) or self.stage.loop.reconcile()
        self.idle_since = None if changed else now
        self.versions = self.row_versions()

    def row_versions(self) -> list[tuple[str, ...]]:
        """Return a value that changes whenever a workload or pod changes."""
        with connection.cursor() as cursor:
            cursor.execute(VERSIONS)
            return list(cursor.fetchall())

    def have_pods_changed(self) -> bool:
        """Return whether a pod has started or ended since the last call."""
        try:
            return os.eventfd_read(self.stage.runtime.wake_fds()[0]) > 0
        except BlockingIOError:
            return False

    def step_services(self) -> None:
        for service in live_services():
            run_pass(service, self.reconcile_context, self.stage.clock.now())

    def sync_engines(self) -> None:
        """Start and stop simulated engines so that every running pod has an engine that responds."""
        running = set(self.addresses())
        for address in running - set(self.engines.engines) if self.answers else ():
            self.engines.appear(address, FakeEngine(Identity("default", self.weights), weights=self.weights))
        for address in set(self.engines.engines) - running:
            if address.startswith("http://127.0.0.1:"):
                self.engines.vanish(address)

    def addresses(self) -> Iterator[str]:
        for pod_id in self.stage.runtime.running():
            order = self.stage.runtime.order(pod_id)
            if "BERTH_PORT" in order.env:
                yield f"http://{order.env['BERTH_HOST']}:{order.env['BERTH_PORT']}"

    def until(self, done: Any, seconds: float = 1, max_ticks: int = MAX_TICKS) -> None:
        for _ in range(max_ticks):
            if done():
                return
            self.tick(seconds=seconds)
        assert done(), "the condition was never met"

    def finish(self, request: ScaleRequest, seconds: float = 1) -> ScaleRequest:
        self.until(lambda: self.reload(request).is_final, seconds)
        return self.reload(request)

    def reload(self, request: ScaleRequest) -> ScaleRequest:
        return ScaleRequest.objects.select_related("service__workload__project").get(pk=request.pk)

    def states(self, service: Service) -> list[str]:
        return list(service.engines.order_by("number").values_list("state", flat=True))

    def live(self, service: Service) -> list[InferenceEngine]:
        return list(service.engines.filter(ended_at__isnull=True).order_by("number"))

    def statuses(self, request: ScaleRequest) -> list[str]:
        return list(request.steps.values_list("status", flat=True))

    def children(self) -> list[Workload]:
        rows = Workload.objects.filter(service__isnull=True)
        return list(rows.order_by("submitted_at", "name"))

    def routed_urls(self) -> list[str]:
        return sorted(address for address, worker in self.router.registered.items() if worker.healthy)

    def assert_no_orphans(self) -> None:
        """Assert that every process belongs to a live engine, and every router entry to an engine."""
        live = InferenceEngine.objects.filter(ended_at__isnull=True)
        owned = set(live.values_list("workload_id", flat=True))
        for pod_id in self.stage.runtime.running():
            order = self.stage.runtime.order(pod_id)
            assert order.env["BERTH_WORKLOAD_ID"] in {str(pk) for pk in owned}
        known_urls = set(InferenceEngine.objects.exclude(router_url="").values_list("router_url", flat=True))
        assert set(self.router.registered) <= known_urls


def make_stage(nodes: int = 4) -> ServiceStage:
    """Return a stage with `nodes` nodes of two GPUs each, all within vision's quota."""
    made = Stage(make_cast())
    for number in range(nodes):
        made.node(number)
    made.quota(made.cast.research, 2 * nodes)
    made.quota(made.cast.vision, 2 * nodes)
    return ServiceStage(made)
