"""Tests for the training example, with real processes and interruptions."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from berth.core.spec import parse_workload
from berth.examples import checkpoint
from berth.examples.crew import Leader
from berth.examples.network import initial_state

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 180.0


class Run:
    """The ranks of one training run and the events of rank 0."""

    def __init__(self, workspace: Path, size: int, *flags: str) -> None:
        self.workspace, self.flags = workspace, flags
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.ranks = {rank: self.start(rank, size) for rank in range(size)}

    def start(self, rank: int, size: int) -> "subprocess.Popen[str]":
        env = {
            **os.environ, "PYTHONPATH": str(ROOT / "platform"), "BERTH_WORKSPACE": str(self.workspace),
            "RANK": str(rank), "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port),
        }  # fmt: skip
        training = ["-m", "berth.examples.train_numpy", "--json", "--report-every", "5"]
        command = [sys.executable, *training, *self.flags]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    def next_event(self, rank: int = 0) -> dict[str, Any]:
        line = self.ranks[rank].stdout.readline()  # type: ignore[union-attr]
        assert line, f"rank {rank} has no more output"
        event: dict[str, Any] = json.loads(line)
        return event

    def until(self, name: str, **fields: object) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        deadline = time.monotonic() + PATIENCE
        while not events or events[-1]["event"] != name or any(events[-1][k] != v for k, v in fields.items()):
            assert time.monotonic() < deadline, events[-3:]
            events.append(self.next_event())
        return events

    def codes(self) -> dict[int, int]:
        return {rank: process.wait(timeout=PATIENCE) for rank, process in self.ranks.items()}

    def end(self) -> None:
        for process in self.ranks.values():
            process.kill()
            process.communicate()


@pytest.fixture
def runs() -> Iterator[list[Run]]:
    started: list[Run] = []
    yield started
    for run in started:
        run.end()


@pytest.mark.heavy
def test_trained_weights_do_not_depend_on_the_number_of_ranks(tmp_path: Path, runs: list[Run]) -> None:
    weights = []
    for size in (1, 4):
        workspace = tmp_path / str(size)
        workspace.mkdir()
        run = Run(workspace, size, "--steps", "60", "--batch", "128")
        runs.append(run)
        events = run.until("done")
        losses = [event["loss"] for event in events if event["event"] == "step"]
        assert losses[-1] < losses[0] / 2
        checksums = {events[-1]["weights"], *(run.next_event(rank)["weights"] for rank in range(1, size))}
        assert len(checksums) == 1, "the ranks of one run agree to the last bit"
        assert set(run.codes().values()) == {0}
        state = checkpoint.load(workspace)
        assert state is not None
        weights.append(state.weights)
    np.testing.assert_allclose(weights[1], weights[0], rtol=1e-6, atol=1e-9)


@pytest.mark.heavy
def test_stopped_training_resumes_from_its_checkpoint(tmp_path: Path, runs: list[Run]) -> None:
    flags = ("--steps", "80", "--batch", "128", "--step-seconds", "0.02", "--checkpoint-every", "1000")
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    uninterrupted = Run(whole, 1, *flags)
    interrupted = Run(parts, 2, *flags)
    runs += [uninterrupted, interrupted]
    interrupted.until("step", step=10)
    for process in interrupted.ranks.values():
        process.send_signal(signal.SIGTERM)
    stopped_at = interrupted.until("checkpointed")[-1]["step"]
    assert set(interrupted.codes().values()) == {128 + signal.SIGTERM}
    assert 10 <= stopped_at < 80
    resumed = Run(parts, 4, *flags)
    runs.append(resumed)
    begins = resumed.until("done")[0]
    assert (begins["event"], begins["step"], begins["resumed"]) == ("begins", stopped_at, True)
    uninterrupted.until("done")
    both = [checkpoint.load(place) for place in (whole, parts)]
    assert both[0] is not None
    assert both[1] is not None
    np.testing.assert_allclose(both[0].weights, both[1].weights, rtol=1e-6, atol=1e-9)


def test_training_continues_while_ranks_join_leave_and_crash(tmp_path: Path, runs: list[Run]) -> None:
    run = Run(tmp_path, 1, "--steps", "100000", "--batch", "64", "--step-seconds", "0.01")
    runs.append(run)
    run.until("step", ranks=1)
    run.ranks[1] = run.start(1, 2)
    run.ranks[2] = run.start(2, 3)
    run.until("step", ranks=3)
    run.ranks[2].kill()
    run.until("step", ranks=2)
    run.ranks[1].send_signal(signal.SIGTERM)
    assert run.ranks[1].wait(timeout=PATIENCE) == 128 + signal.SIGTERM
    run.until("step", ranks=1)
    run.ranks[0].send_signal(signal.SIGTERM)
    run.until("checkpointed")


def test_rank_without_its_leader_exits(tmp_path: Path, runs: list[Run]) -> None:
    run = Run(tmp_path, 2, "--steps", "100000", "--batch", "64", "--step-seconds", "0.01")
    runs.append(run)
    run.until("step", ranks=2)
    run.ranks[0].kill()
    assert run.ranks[1].wait(timeout=PATIENCE) == 75


def test_leader_that_must_stop_forms_no_ring() -> None:
    leader = Leader.open(("127.0.0.1", 0), size=1)
    try:
        state = initial_state(hidden=4, seed=0)
        assert not leader.next_step(state, must_stop=lambda: True)
        assert (leader.epoch, leader.ring) == (0, None)
        assert leader.next_step(state, must_stop=lambda: False)
        assert leader.epoch == 1
    finally:
        leader.server.close()
        leader.listener.close()


def test_incomplete_checkpoint_is_ignored(tmp_path: Path) -> None:
    from berth.examples.network import initial_state

    state = initial_state(4, seed=1)
    checkpoint.save(tmp_path, state)
    (tmp_path / f".{checkpoint.NAME}.99").write_bytes(b"half of it")
    stored = checkpoint.load(tmp_path)
    assert stored is not None
    assert stored.to_bytes() == state.to_bytes()
    assert checkpoint.load(tmp_path / "none") is None


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda file: file.stem)
def test_examples_are_valid_workloads(file: Path) -> None:
    spec = parse_workload(yaml.safe_load(file.read_text()))
    assert all(spec.role_argv(role) for role in spec.all_roles)
