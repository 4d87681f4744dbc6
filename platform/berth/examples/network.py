"""A small neural network that separates two interleaved spirals, trained with Adam."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
INPUTS, CLASSES = 6, 2


@dataclass(slots=True)
class State:
    """Training state. Training is deterministic, so equal states lead to equal results."""

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


def initial_state(hidden: int, seed: int) -> State:
    rng = np.random.default_rng(seed)
    shapes = _layer_shapes(hidden)
    weights = np.concatenate([rng.normal(0, 1 / np.sqrt(shape[0]), shape).ravel() for shape in shapes])
    return State(0, weights, np.zeros_like(weights), np.zeros_like(weights))


def make_batch(step: int, count: int, seed: int) -> tuple[Array, NDArray[np.int64]]:
    """Return a step's training batch, which does not depend on the number of ranks."""
    rng = np.random.default_rng([seed, step])
    kind = rng.integers(0, CLASSES, count)
    radius = np.sqrt(rng.random(count)) * 2 * np.pi
    angle = radius + kind * np.pi
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1) / (2 * np.pi)
    points += rng.normal(0, 0.02, points.shape)
    x, y = points[:, 0], points[:, 1]
    features = np.stack([x, y, np.sin(3 * x), np.sin(3 * y), x * y, np.ones(count)], axis=1)
    return features, kind


def compute_sums(state: State, hidden: int, features: Array, kind: NDArray[np.int64]) -> Array:
    """Return the gradient, loss and number of correct predictions, summed over the examples."""
    first, second, last = _split_weights(state.weights, hidden)
    hidden_one = np.tanh(features @ first)
    hidden_two = np.tanh(hidden_one @ second)
    scores = hidden_two @ last
    scores -= scores.max(axis=1, keepdims=True)
    probabilities = np.exp(scores)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(kind))
    loss = -np.log(probabilities[rows, kind] + 1e-12).sum()
    correct = float((probabilities.argmax(axis=1) == kind).sum())
    error = probabilities
    error[rows, kind] -= 1
    error_two = (error @ last.T) * (1 - hidden_two**2)
    error_one = (error_two @ second.T) * (1 - hidden_one**2)
    gradients = [features.T @ error_one, hidden_one.T @ error_two, hidden_two.T @ error]
    return np.concatenate([*(gradient.ravel() for gradient in gradients), [loss, correct]])


def adam_step(state: State, gradient: Array, rate: float) -> None:
    """Update the state in place with one Adam step."""
    state.step += 1
    state.mean += 0.1 * (gradient - state.mean)
    state.spread += 0.001 * (gradient**2 - state.spread)
    mean = state.mean / (1 - 0.9**state.step)
    spread = state.spread / (1 - 0.999**state.step)
    state.weights -= rate * mean / (np.sqrt(spread) + 1e-8)


def _layer_shapes(hidden: int) -> tuple[tuple[int, int], ...]:
    return (INPUTS, hidden), (hidden, hidden), (hidden, CLASSES)


def _split_weights(weights: Array, hidden: int) -> list[Array]:
    shapes = _layer_shapes(hidden)
    ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(weights, ends), shapes, strict=True)]
