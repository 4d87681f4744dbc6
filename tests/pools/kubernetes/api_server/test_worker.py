"""Tests for calls to a cluster that run in the background."""

import threading
from typing import Any

import pytest

from pools.kubernetes import worker as worker_module
from pools.kubernetes.worker import THREADS, CallStillRunning, Worker


def test_concurrent_caller_does_not_discard_a_queued_call(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker("cluster", 120, lambda: None)
    monkeypatch.setattr(worker_module, "WAIT_MAX", 3600.0)
    go_on = threading.Event()
    has_finished = worker._wait_until_finished

    def overtaken(call: Any) -> bool:
        assert has_finished(call)
        monkeypatch.setattr(worker, "_wait_until_finished", has_finished)
        assert worker.run("pod", "log", lambda: "second") == "first"
        worker.patience = 0
        with pytest.raises(CallStillRunning):
            worker.run("pod", "log", lambda: str(go_on.wait(120)))
        return True

    monkeypatch.setattr(worker, "_wait_until_finished", overtaken)
    assert worker.run("pod", "log", lambda: "first") == "first"
    go_on.set()
    worker.patience = 120
    worker._wait_from = 0
    assert worker.run("pod", "log", lambda: "a third call") == "True"
    worker.close()


def test_caller_keeps_waiting_while_other_calls_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    # The call is queued behind others and takes longer than the caller waits.
    monkeypatch.setattr(worker_module, "WAIT_MAX", 3600.0)
    worker = Worker("cluster", 2.0, lambda: None)
    clock = threading.Event()
    for number in range(10 * THREADS):
        worker.begin(f"pod-{number}", "start", lambda: clock.wait(0.25))
    assert worker.run("last", "start", lambda: "started") == "started"
    worker.close()


def test_unread_results_neither_block_further_calls_nor_accumulate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "CALLS_MAX", 3)
    monkeypatch.setattr(worker_module, "RESULT_SECONDS", 0.0)
    late, go_on = threading.Semaphore(0), threading.Event()
    worker = Worker("cluster", 0, late.release)
    for number in range(3):
        with pytest.raises(CallStillRunning):
            worker.run(f"pod-{number}", "start", lambda: go_on.wait(120))
    with pytest.raises(CallStillRunning):
        worker.run("refused", "start", lambda: "never called")
    go_on.set()
    for _ in range(3):
        assert late.acquire(timeout=120)
    worker.begin("further", "start", lambda: "started")
    assert list(worker._calls) == ["further"]
    worker.close()
