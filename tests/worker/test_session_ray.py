"""Tests for the Ray cluster of a session and its errors."""

import logging
import os
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from joblib import Parallel, delayed
from joblib.parallel import BatchedCalls, SequentialBackend

from berth.worker import calls, session_ray
from berth.worker.own_ray import RayUnavailable
from pools.plugins.builtin import joblib
from pools.plugins.builtin.joblib import run_batch

WORKER_ENV = {
    "BERTH_RUNTIME": "ray", "RANK": "1", "BERTH_NODE_ADDRESS": "127.0.0.1", "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "1", "BERTH_GANG_SECRET": "s", "BERTH_CPUS": "2.5",
}  # fmt: skip


def keep_running() -> bool:
    return True


def test_worker_in_a_pool_without_ray_joins_no_ray_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_ray, "find_spec", lambda name: pytest.fail("must not be called"))
    ray = session_ray.SessionRay()
    ray.join(keep_running, {**WORKER_ENV, "BERTH_RUNTIME": "local"})
    assert (ray.is_lost, session_ray.RAY_DIRECTORY_VARIABLE in os.environ) == (False, False)
    ray.leave()


def test_session_without_the_ray_package_works_and_logs_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session_ray, "find_spec", lambda name: None)
    with caplog.at_level(logging.WARNING):
        session_ray.SessionRay().join(keep_running, WORKER_ENV)
    assert "Ray is not installed" in caplog.text


def test_worker_stopped_during_startup_does_not_wait_for_the_ray_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (session_ray, sys.modules["berth.worker.own_ray"]):
        monkeypatch.setattr(module, "find_spec", lambda name: SimpleNamespace())
    with pytest.raises(RayUnavailable, match="Ray could not be started for the session"):
        session_ray.SessionRay().join(lambda: False, WORKER_ENV)


def _error(name: str, module: str = "ray.exceptions") -> type[Exception]:
    return type(name, (Exception,), {"__module__": module})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_error("ActorDiedError"), "interrupted"),
        (type("OwnerDiedError", (_error("ObjectLostError"),), {}), "interrupted"),
        (_error("RayTaskError"), "error"),
        (_error("GetTimeoutError"), "error"),
        (_error("ActorDiedError", "mine"), "error"),
    ],
)
def test_ray_system_failures_are_retried_but_task_errors_are_not(error: Any, kind: str) -> None:
    def fails() -> None:
        raise error("gone")

    payload = cloudpickle.dumps((fails, (), {}))
    outcome = calls.run(payload, (), 1000)
    assert (outcome.kind, "gone" in outcome.details["message"]) == (kind, True)


@pytest.mark.heavy
def test_joblib_jobs_run_locally_without_a_ray_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ray = ModuleType("ray")
    fake_ray.is_initialized = lambda: False  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", fake_ray)
    jobs = [delayed(pow)(x, 2) for x in range(4)]
    assert run_batch(BatchedCalls(jobs, (SequentialBackend(nesting_level=1), 1))) == [0, 1, 4, 9]
    decorate = joblib().decorate
    assert decorate is not None
    assert decorate(lambda: Parallel(n_jobs=1)(delayed(abs)(x) for x in (-1, 2)))() == [1, 2]
