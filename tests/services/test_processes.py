"""Tests for real service processes that are killed during requests to real engines."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from pools.models import NodePool
from projects.models import InferenceEngine, ScaleRequest, Service
from projects.services import workloads
from projects.services.inference import requests
from projects.services.inference.rules import ScaleParameters
from tests.cast import Cast, make_cast
from tests.journeys.installation import until
from tests.scheduler.processes.test_processes import ROOT, Schedulers

pytestmark = [pytest.mark.timeout(300), pytest.mark.heavy]
SERVE = f"exec {sys.executable} -m tests.serving.engine.server --port $BERTH_PORT"


class ServiceProcesses(Schedulers):
    def run_services(self) -> subprocess.Popen[bytes]:
        with (self.home / "services.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "run_services"], cwd=ROOT, env=self.env, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def routed_urls(self, service: Service) -> list[str]:
        file = self.home / "routers" / f"{service.workload_id}.conf"
        text = file.read_text() if file.exists() else ""
        lines = [line for line in text.splitlines() if " down;" not in line]
        return sorted(re.findall(r"# (http\S+)", "\n".join(lines)))


@pytest.fixture
def cast(transactional_db: None) -> Cast:
    made = make_cast()
    NodePool.objects.filter(pk=made.pool.pk).update(
        provider="local", runtime="local", nodes_min=0, nodes_max=1, gpus_per_node=4, reconcile_tick=1
    )
    return made


@pytest.fixture
def service_processes(cast: Cast, database_url: str, tmp_path: Path) -> Iterator[ServiceProcesses]:
    made = ServiceProcesses(tmp_path, database_url)
    made.env["BERTH_POD_PATHS"] = str(ROOT / "tests")  # pods need the server that the inference engines run
    yield made
    made.close()


def is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def kill_in_status(
    service_processes: ServiceProcesses, process: subprocess.Popen[bytes], request: ScaleRequest, status: str
) -> subprocess.Popen[bytes]:
    """Kill the process when the request reaches the status, and return the process that replaces it."""

    def entered() -> bool:
        request.refresh_from_db()
        return request.steps.filter(status=status).exists()

    until(entered, details=lambda: (request.status, request.error_message))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return service_processes.run_services()


@pytest.mark.shows("RLX-01", "RLX-08")
def test_scale_requests_complete_even_if_service_processes_are_killed(
    cast: Cast, service_processes: ServiceProcesses
) -> None:
    service_processes.start()
    process = service_processes.run_services()
    document = {
        "name": "chat", "kind": "service", "command": SERVE, "env": {"PYTHONPATH": str(ROOT)},
        "roles": [{"name": "engine", "replicas": 1, "gpu": 1}],
        "service": {
            "router": {"kind": "static"}, "scale_in_drain_timeout": 5, "scale_in_shutdown_timeout": 2,
        },
    }  # fmt: skip
    row = workloads.submit(actor=cast.dave, project=cast.vision, document=document)
    service = Service.objects.get(workload=row)

    def states() -> list[str]:
        return list(service.engines.order_by("number").values_list("state", flat=True))

    until(lambda: states() == ["ACTIVE"], details=states)
    scale_out = requests.scale_out(
        actor=cast.dave, service=service, parameters=ScaleParameters(num_replicas=3)
    ).request
    assert scale_out is not None
    for status in ("CREATING", "HEALTH_CHECKING", "READY"):
        process = kill_in_status(service_processes, process, scale_out, status)
    until(lambda: states() == ["ACTIVE"] * 3, 120, details=states)
    live = InferenceEngine.objects.filter(service=service).order_by("number")
    urls = sorted(engine.url for engine in live)
    assert service_processes.routed_urls(service) == urls
    assert all(is_healthy(url) for url in urls)
    scale_in = requests.scale_in(
        actor=cast.dave, service=service, parameters=ScaleParameters(num_replicas=1)
    ).request
    assert scale_in is not None
    for status in ("DRAINING", "REMOVING"):
        process = kill_in_status(service_processes, process, scale_in, status)
    until(lambda: states() == ["ACTIVE", "REMOVED", "REMOVED"], 120, details=states)
    initial_url = service.engines.get(number=0).url
    until(lambda: service_processes.routed_urls(service) == [initial_url])
    until(lambda: [url for url in urls if is_healthy(url)] == [initial_url])
    until(lambda: ScaleRequest.objects.get(pk=scale_in.pk).status == "COMPLETED")
