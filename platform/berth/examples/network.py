"""A small neural network that separates two interleaved spirals, trained with Adam."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
INPUTS, CLASSES = 6, 2


@dataclass(slots=True)
class State:
    """Training state. Training is deterministic: equal states lead to equal results."""

    step: int
    weights: Array
    mean: Array
    spread: Array

    def to_bytes(self) -> bytes:
        return np.concatenate([[float(self.step)], self.weights, self.mean, self.spread]).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "State":
        values = np.frombuffer(data, dtype=np.float64)
        weights, mean, spread = (part.copy() for part in np.split(values[1:], 3))
        return cls(int(values[0]), weights, mean, spread)


def first_state(hidden: int, seed: int) -> State:
    rng = np.random.default_rng(seed)
    shapes = _shapes(hidden)
    weights = np.concatenate([rng.normal(0, 1 / np.sqrt(shape[0]), shape).ravel() for shape in shapes])
    return State(0, weights, np.zeros_like(weights), np.zeros_like(weights))


def examples(step: int, count: int, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Return the batch of a step. All ranks get the same batch, so their number does not affect results."""
    rng = np.random.default_rng([seed, step])
    kind = rng.integers(0, CLASSES, count)
    turn = np.sqrt(rng.random(count)) * 2 * np.pi
    angle = turn + kind * np.pi
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], axis=1) / (2 * np.pi)
    points += rng.normal(0, 0.02, points.shape)
    x, y = points[:, 0], points[:, 1]
    features = np.stack([x, y, np.sin(3 * x), np.sin(3 * y), x * y, np.ones(count)], axis=1)
    return features, kind


def sums(state: State, hidden: int, features: Array, kind: NDArray[np.int64]) -> Array:
    """Return the gradient, the loss and the number of correct predictions, summed over the examples."""
    first, second, last = _parts(state.weights, hidden)
    one = np.tanh(features @ first)
    two = np.tanh(one @ second)
    scores = two @ last
    scores -= scores.max(axis=1, keepdims=True)
    chance = np.exp(scores)
    chance /= chance.sum(axis=1, keepdims=True)
    rows = np.arange(len(kind))
    loss = -np.log(chance[rows, kind] + 1e-12).sum()
    right = float((chance.argmax(axis=1) == kind).sum())
    error = chance
    error[rows, kind] -= 1
    at_two = (error @ last.T) * (1 - two**2)
    at_one = (at_two @ second.T) * (1 - one**2)
    gradients = [features.T @ at_one, one.T @ at_two, two.T @ error]
    return np.concatenate([*(gradient.ravel() for gradient in gradients), [loss, right]])


def advance(state: State, gradient: Array, rate: float) -> None:
    """Take one Adam step."""
    state.step += 1
    state.mean += 0.1 * (gradient - state.mean)
    state.spread += 0.001 * (gradient**2 - state.spread)
    mean = state.mean / (1 - 0.9**state.step)
    spread = state.spread / (1 - 0.999**state.step)
    state.weights -= rate * mean / (np.sqrt(spread) + 1e-8)


def _shapes(hidden: int) -> tuple[tuple[int, int], ...]:
    return (INPUTS, hidden), (hidden, hidden), (hidden, CLASSES)


def _parts(weights: Array, hidden: int) -> list[Array]:
    shapes = _shapes(hidden)
    ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(weights, ends), shapes, strict=True)]
