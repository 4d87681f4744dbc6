"""Tests for the background calls to a cluster."""

import threading
from typing import Any

import pytest

from pools.kubernetes.worker import StillRunning, Worker


def test_concurrent_caller_does_not_discard_a_queued_call(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker("cluster", 30, lambda: None)
    go_on = threading.Event()
    has_finished = worker._has_finished

    def overtaken(call: Any) -> bool:
        """Let another caller take the result and start the next call, before this caller goes on."""
        assert has_finished(call)
        monkeypatch.setattr(worker, "_has_finished", has_finished)
        assert worker.run("pod", "log", lambda: "second") == "first"
        worker.patience = 0
        with pytest.raises(StillRunning):
            worker.run("pod", "log", lambda: str(go_on.wait(30)))
        return True

    monkeypatch.setattr(worker, "_has_finished", overtaken)
    assert worker.run("pod", "log", lambda: "first") == "first"
    go_on.set()
    worker.patience = 30
    worker._wait_from = 0
    assert worker.run("pod", "log", lambda: "a third call") == "True"
    worker.close()
