"""Data-parallel training on CPUs with any number of ranks.

Rank 0 saves a checkpoint in BERTH_WORKSPACE regularly and on SIGTERM. The next start resumes from it. Without
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, the program runs alone.
"""

import argparse
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.examples import checkpoint
from berth.examples.crew import Leader, LeaderEnded, Member
from berth.examples.network import Array, State, adam_step, compute_sums, initial_state, make_batch
from berth.examples.ring import Ring

STOPPED = 128 + signal.SIGTERM
LEADER_ENDED = 75  # EX_TEMPFAIL from sysexits.h: try again later


@dataclass(frozen=True)
class Job:
    steps: int
    batch: int
    hidden: int
    rate: float
    seed: int
    step_seconds: float
    checkpoint_every: int
    report_every: int
    as_json: bool
    workspace: Path


class StopRequest:
    """SIGTERM handler that stops training at the end of the current step."""

    def __init__(self) -> None:
        self.received = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self.received = True


def main(arguments: Sequence[str] | None = None) -> int:
    job, stop = _parse_job(arguments), StopRequest()
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    master = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "0"))
    if rank == 0:
        return lead(job, Leader.open(master, size), stop)
    return follow(job, Member.join(master, rank), stop)


def lead(job: Job, crew: Leader, stop: StopRequest) -> int:
    state = checkpoint.load(job.workspace) or initial_state(job.hidden, job.seed)
    crew.wait_for_members()
    _report(job, "begins", state, ranks=len(crew.members) + 1, resumed=state.step > 0)
    started_at, first = time.monotonic(), state.step
    while state.step < job.steps and not stop.received:
        if not crew.next_step(state, lambda: stop.received):
            break
        assert crew.ring is not None
        try:
            loss, accuracy = take_step(job, state, crew.ring)
        except ConnectionError:
            crew.discard_ring()
            continue
        if state.step % job.report_every == 0 or state.step == job.steps:
            speed = (state.step - first) / max(time.monotonic() - started_at, 1e-9)
            ranks = len(crew.members) + 1
            _report(job, "step", state, loss=loss, accuracy=accuracy, ranks=ranks, steps_per_second=speed)
        if state.step % job.checkpoint_every == 0:
            checkpoint.save(job.workspace, state)
    checkpoint.save(job.workspace, state)
    if state.step < job.steps:
        _report(job, "checkpointed", state)
        return STOPPED
    crew.finish()
    _report(job, "done", state, weights=_digest(state))
    return 0


def follow(job: Job, crew: Member, stop: StopRequest) -> int:
    state = initial_state(job.hidden, job.seed)
    try:
        while not stop.received:
            next_state = crew.next_step(state)
            if next_state is None:
                _report(job, "done", state, weights=_digest(state))
                return 0
            state = next_state
            assert crew.ring is not None
            try:
                take_step(job, state, crew.ring)
            except ConnectionError:
                crew.discard_ring()
    except LeaderEnded:
        return STOPPED if stop.received else LEADER_ENDED
    finally:
        crew.leave()
    return STOPPED


def take_step(job: Job, state: State, ring: Ring) -> tuple[float, float]:
    """Train on this rank's share of the batch. Return the loss and the accuracy.

    A failure leaves `state` unchanged.
    """
    features, kind = make_batch(state.step, job.batch, job.seed)
    own = slice(ring.position, None, ring.size)
    ours = compute_sums(state, job.hidden, features[own], kind[own])
    if job.step_seconds:
        time.sleep(job.step_seconds / ring.size)
    total: Array = ring.sum(ours) / job.batch
    adam_step(state, total[:-2], job.rate)
    return float(total[-2]), float(total[-1])


def _report(job: Job, event: str, state: State, **facts: object) -> None:
    if job.as_json:
        line = json.dumps({"event": event, "step": state.step, "of": job.steps, **facts})
    else:
        values = [f"{name} {v:.4g}" if isinstance(v, float) else f"{name} {v}" for name, v in facts.items()]
        line = "  ".join([f"{event:<12} {state.step}/{job.steps}", *values])
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _digest(state: State) -> str:
    return hashlib.sha256(state.weights.tobytes()).hexdigest()[:16]


def _parse_job(arguments: Sequence[str] | None) -> Job:
    parser = argparse.ArgumentParser(
        prog="train_numpy", description="Train a small network with several ranks."
    )
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument(
        "--batch", type=int, default=512, help="Number of examples per step, across all ranks."
    )
    parser.add_argument("--hidden", type=int, default=32, help="Width of the two hidden layers.")
    parser.add_argument("--rate", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--step-seconds",
        type=float,
        default=0.0,
        help="Extra time per step in seconds, divided among the ranks.",
    )
    parser.add_argument("--checkpoint-every", type=int, default=50)
    parser.add_argument("--report-every", type=int, default=20)
    parser.add_argument("--json", dest="as_json", action="store_true")
    parser.add_argument("--workspace", type=Path, default=Path(os.environ.get("BERTH_WORKSPACE", ".")))
    return Job(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
