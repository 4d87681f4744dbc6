"""Tests that no submission at a random time waits for a timed tick.

The scheduler is a real process without timed ticks. If it missed the wake-up of a submission or
of a pod's end, the workload would wait for a day. The test therefore finds lost wake-ups on a
machine of any speed.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db.models import F, Max

from berth.db.loops.wake import wake
from pools.models import Node, NodePool
from projects.models import Phase, Workload
from projects.services.workloads import submission
from tests.cast import Cast, make_cast, training
from tests.journeys.installation import PATIENCE, until

ROOT = Path(__file__).resolve().parents[3]
SCHEDULER_WITHOUT_TIMED_TICKS = """
import django
django.setup()
from django.core.management import call_command
from scheduler.loop import leader
leader.BUSY_SECONDS = leader.IDLE_SECONDS = leader.EMPTY_SECONDS = 86_400.0
call_command("run_scheduler")
"""
LONGEST_PAUSE, LONGEST_RUN = 0.1, 0.2  # seconds between submissions, and seconds for which pods run


@pytest.fixture
def cast(transactional_db: None) -> Cast:
    made = make_cast()
    NodePool.objects.filter(pk=made.pool.pk).update(
        nodes_min=1, nodes_max=1, nodes_desired=1, cpu_milli=10**8, memory_mib=10**9, max_pods=10**5
    )
    return made


@pytest.fixture
def scheduler(cast: Cast, database_url: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    env = {
        **os.environ,
        "BERTH_HOME": str(tmp_path),
        "DATABASE_URL": database_url,
        "DJANGO_SETTINGS_MODULE": "berth.server.settings",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'platform'}",
        "BERTH_FAKE_POOLS": "benchmarks.setup.timed_pods",
        "BERTH_MEASURE_SECONDS": "0",
        "BERTH_METRICS_SECONDS": "0",
    }
    command = [sys.executable, "-c", SCHEDULER_WITHOUT_TIMED_TICKS]
    process = subprocess.Popen(command, cwd=ROOT, env=env)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def is_ready() -> bool:
    """Return whether the node is ready. Wake the scheduler, which has no timed ticks."""
    wake("scheduler")
    return Node.objects.filter(state="ready").exists()


def count_ended() -> int:
    return Workload.objects.filter(phase=Phase.COMPLETED).count()


def wait_for_more_ends(ended: int, count: int) -> int:
    """Wait until more workloads have ended, and return their number."""
    until(lambda: count_ended() > ended, details=lambda: f"{count - ended} of {count} workloads remain")
    return count_ended()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("count", [10, pytest.param(10_000, marks=pytest.mark.heavy)])
def test_submitted_workloads_start_without_waiting_for_a_timed_tick(
    cast: Cast, scheduler: subprocess.Popen[bytes], count: int
) -> None:
    until(is_ready)
    chance = random.Random(count)
    for number in range(count):
        time.sleep(chance.uniform(0, LONGEST_PAUSE))
        document = training(
            f"w-{number}",
            roles=[{"name": "worker", "replicas": 1, "cpu": "10m"}],
            env={"SECONDS": f"{chance.uniform(0, LONGEST_RUN):.3f}"},
        )
        submission.submit(actor=cast.alice, project=cast.vision, document=document)
    ended = 0
    while ended < count:
        ended = wait_for_more_ends(ended, count)
    assert scheduler.poll() is None
    waited = Workload.objects.aggregate(longest=Max(F("first_started_at") - F("submitted_at")))["longest"]
    print(f"\nthe longest of {count} workloads waited {waited.total_seconds() * 1000:.0f} ms until it ran")
