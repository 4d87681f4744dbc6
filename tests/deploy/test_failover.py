"""Failover test: one of two web processes and one of two schedulers are killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from berth.db.models import Lease
from projects.models import Workload
from projects.services.people import tokens
from tests.cast import make_cast, training
from tests.journeys.installation import until
from tests.support.ports import free_port

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(180), pytest.mark.django_db(transaction=True)]
TAKEOVER_SECONDS = 30.0  # the lease lasts 10 s, and a busy machine notices its expiry late


@pytest.fixture
def start(child_env: dict[str, str], tmp_path: Path) -> Iterator[object]:
    running: list[subprocess.Popen[bytes]] = []
    env = {**child_env, "BERTH_HOME": str(tmp_path / "home"), "BERTH_SECRET_KEY": "k" * 50}

    def start_process(*module: str) -> subprocess.Popen[bytes]:
        log = (tmp_path / f"{module[0]}-{len(running)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", *module], env=env, stdout=log, stderr=log, cwd="/", start_new_session=True
        )
        running.append(process)
        return process

    yield start_process
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz", trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def leader() -> str:
    return Lease.objects.filter(name="scheduler").values_list("holder", flat=True).first() or ""


def test_standby_scheduler_and_second_web_process_take_over(start) -> None:  # type: ignore[no-untyped-def]
    cast = make_cast()
    _, secret = tokens.issue(actor=cast.dave, name="test", scopes=["read", "write"], expires_at=None)
    ports = [free_port(), free_port()]
    webs = [start("berth.server.up.serve", "--port", str(port)) for port in ports]
    first = start("django", "run_scheduler")
    until(leader)
    start("django", "run_scheduler")
    addresses = [f"http://127.0.0.1:{port}" for port in ports]
    for address in addresses:
        until(lambda address=address: is_ready(address))  # type: ignore[misc]
    assert leader().endswith(f":{first.pid}")
    epoch = Lease.objects.get(name="scheduler").epoch

    first.kill()
    webs[0].kill()
    killed = time.monotonic()
    sent = httpx.post(
        f"{addresses[1]}/api/v1/workloads", json={**training(), "project": "vision"}, trust_env=False,
        headers={"Authorization": f"Bearer {secret}", "Idempotency-Key": "once"},
    )  # fmt: skip
    assert sent.status_code == 201, sent.text
    until(lambda: not leader().endswith(f":{first.pid}"), TAKEOVER_SECONDS)
    assert time.monotonic() - killed < TAKEOVER_SECONDS
    lease = Lease.objects.get(name="scheduler")
    assert lease.epoch == epoch + 1
    # The new leader has decided on the workload.
    until(lambda: Workload.objects.get().explained_at, TAKEOVER_SECONDS)
