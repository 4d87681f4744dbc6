"""Tests for real scheduler processes that are killed while they run real pods."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.utils import timezone

from berth.db.models import Lease
from pools.models import NodePool
from projects.models import Phase, Pod, Workload
from projects.services.workloads import submission
from scheduler.models import Allocation, DeviceClaim
from tests.cast import Cast, make_cast, training
from tests.journeys.installation import PATIENCE, until

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.timeout(600)


class Schedulers:
    """The scheduler processes of one installation. Pods belong to a process that outlives them."""

    def __init__(self, home: Path, url: str) -> None:
        self.home, self.pods_directory = home, home / "of-pods"
        self.pods_directory.mkdir()
        self.pods_directory.chmod(0o777)  # pods have users of their own
        waits = "import sys; sys.stdin.read()"
        self.anchor = subprocess.Popen([sys.executable, "-c", waits], stdin=subprocess.PIPE)
        started = Path(f"/proc/{self.anchor.pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        self.env = {
            **os.environ,
            "BERTH_HOME": str(home),
            "DATABASE_URL": url,
            "BERTH_DECLARED_GPUS": "8",
            "DJANGO_SETTINGS_MODULE": "berth.server.settings",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
            "BERTH_POD_WRITABLE_PATHS": str(self.pods_directory),
            "BERTH_ANCHOR": f"{self.anchor.pid}:{started}",
        }
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        with (self.home / "scheduler.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "manage.py", "run_scheduler"], cwd=ROOT, env=self.env, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def leader(self) -> subprocess.Popen[bytes] | None:
        lease = Lease.objects.filter(name="scheduler").first()
        holder = lease.holder.rpartition(":")[2] if lease else ""
        return next((p for p in self.processes if str(p.pid) == holder and p.poll() is None), None)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the leader and make its lease expire immediately."""
        process.kill()
        process.wait()
        Lease.objects.filter(name="scheduler").update(expires_at=timezone.now())

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        self.anchor.kill()
        self.anchor.wait()


@pytest.fixture
def cast(transactional_db: None) -> Cast:
    made = make_cast()
    NodePool.objects.filter(pk=made.pool.pk).update(
        provider="local", runtime="local", nodes_min=0, nodes_max=2, gpus_per_node=2, reconcile_tick=1
    )
    return made


@pytest.fixture
def schedulers(cast: Cast, database_url: str, tmp_path: Path) -> Iterator[Schedulers]:
    made = Schedulers(tmp_path, database_url)
    yield made
    made.close()


def submit(cast: Cast, name: str, command: str, replicas: int = 2) -> Workload:
    roles = [{"name": "worker", "replicas": replicas, "gpu": 1}]
    document = training(name, command=command, roles=roles, grace_period_seconds=2)
    return submission.submit(actor=cast.dave, project=cast.vision, document=document)


def phase(workload: Workload) -> str:
    workload.refresh_from_db()
    return workload.phase


@pytest.mark.shows("PAD-11", "PAD-35")
def test_killed_leader_is_replaced_and_its_pods_keep_running(cast: Cast, schedulers: Schedulers) -> None:
    schedulers.start()
    schedulers.start()
    directory = schedulers.pods_directory
    flag = directory / "go"
    line = f"echo $BERTH_POD_ID >> {directory}/started; while [ ! -e {flag} ]; do sleep 0.05; done"
    workload = submit(cast, "long", line)
    until(lambda: phase(workload) == Phase.RUNNING, details=lambda: (workload.reason, workload.message))
    first = schedulers.leader()
    assert first is not None
    schedulers.kill(first)
    later = submit(cast, "later", "true")
    until(lambda: phase(later) == Phase.COMPLETED, details=lambda: (later.reason, later.message))
    assert schedulers.leader() not in (None, first)
    assert phase(workload) == Phase.RUNNING
    flag.touch()
    until(lambda: phase(workload) == Phase.COMPLETED, details=lambda: (workload.reason, workload.message))
    assert (workload.run, workload.preemptions, workload.restarts) == (1, 0, 0)
    started = (directory / "started").read_text().split()
    assert sorted(started) == sorted(str(pod.pk) for pod in Pod.objects.filter(workload=workload))
    assert not Allocation.objects.filter(released_at__isnull=True).exists()


@pytest.mark.heavy
def test_scheduler_scales_a_pool_up_and_survives_the_loss_of_its_database_connections(
    cast: Cast, schedulers: Schedulers
) -> None:
    # When the scheduler is stopped, it releases its lease immediately.
    process = schedulers.start()
    line = 'test "$BERTH_PROJECT" = vision && test "$CUDA_VISIBLE_DEVICES$WORLD_SIZE" && sleep 1'
    workload = submit(cast, "before", line)
    until(lambda: phase(workload) == Phase.RUNNING, details=lambda: (workload.reason, workload.message))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND usesysid IS NOT NULL"
        )
        assert cursor.fetchone()[0] >= 2
    later = submit(cast, "after", "true")
    until(lambda: phase(later) == Phase.COMPLETED, details=lambda: (later.reason, later.message))
    until(lambda: phase(workload) == Phase.COMPLETED)
    assert workload.pods.filter(state="succeeded").count() == 2
    assert not DeviceClaim.objects.exists()
    assert process.poll() is None
    process.terminate()
    assert process.wait(PATIENCE) == 0
    assert not Lease.objects.get(name="scheduler").holder.endswith(f":{process.pid}")
