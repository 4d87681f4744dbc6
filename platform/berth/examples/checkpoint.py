"""Save and load training checkpoints atomically."""

import os
from pathlib import Path

import numpy as np

from berth.examples.network import State

NAME = "checkpoint.npz"


def save(directory: Path, state: State) -> None:
    temporary = directory / f".{NAME}.{os.getpid()}"
    with temporary.open("wb") as file:
        np.savez(file, step=state.step, weights=state.weights, mean=state.mean, spread=state.spread)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(directory / NAME)


def load(directory: Path) -> State | None:
    path = directory / NAME
    if not path.exists():
        return None
    with np.load(path) as stored:
        return State(int(stored["step"]), stored["weights"], stored["mean"], stored["spread"])
