"""A simulated model with limited concurrency and real metrics."""

import threading
import time
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest

WAITS = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 60, 100)
STEP_SECONDS = 0.02


class Aborted(Exception):
    """Raised if a request ends before its response is complete."""


@dataclass
class Gauges:
    """Gauges with the names and labels of SGLang."""

    registry: CollectorRegistry
    model: str
    ranks: int
    labels: tuple[str, ...] = ("model_name", "engine_type", "tp_rank")
    made: dict[str, Gauge] = field(default_factory=dict)

    def set(self, name: str, value: float, *, each_rank: bool = False) -> None:
        """Set the gauge. Ranks other than the first report 0 unless `each_rank` is set."""
        if name not in self.made:
            self.made[name] = Gauge(f"sglang:{name}", name, self.labels, registry=self.registry)
        for rank in range(self.ranks):
            reported = value if each_rank or rank == 0 else 0
            self.made[name].labels(self.model, "unified", str(rank)).set(reported)


class Model:
    def __init__(
        self,
        name: str,
        *,
        slots: int = 4,
        seconds_per_token: float = 0.01,
        max_tokens: int = 1000,
        ranks: int = 1,
    ) -> None:
        self.name, self.slots, self.seconds_per_token = name, slots, seconds_per_token
        self.max_tokens, self.ranks = max_tokens, ranks
        self.queued = self.running = self.used = self.generated = self.served = self.flushed = 0
        self.paused, self._abort_before, self._count = False, 0, 0
        self.is_held = False  # whether requests stay incomplete, so that tests can look at them
        self._turn = threading.Condition()
        self._registry = CollectorRegistry()
        self._gauges = Gauges(self._registry, name, ranks)
        self._queue_time = self._histogram("sglang:queue_time_seconds", "queueing")
        self._first_token = self._histogram("sglang:time_to_first_token_seconds", "first token")
        self._inter_token = self._histogram("sglang:inter_token_latency_seconds", "between tokens")
        self._seen = (time.monotonic(), 0)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, ("model_name",), buckets=WAITS, registry=self._registry)

    def generate(self, tokens: int) -> None:
        """Wait until all tokens have been generated. Raises Aborted."""
        began = time.monotonic()
        with self._turn:
            self._count += 1
            number = self._count
            self.queued += 1
            try:
                while self.paused or self.running >= self.slots:
                    self._turn.wait(STEP_SECONDS)
                    self._raise_if_aborted(number)
            finally:
                self.queued -= 1
            self.running, self.used = self.running + 1, self.used + tokens
        self._queue_time.labels(self.name).observe(time.monotonic() - began)
        try:
            self._decode(number, tokens, began)
        finally:
            with self._turn:
                self.running, self.used = self.running - 1, self.used - tokens
                self._turn.notify_all()

    def abort(self) -> None:
        with self._turn:
            self._abort_before = self._count
            self._turn.notify_all()

    def flush(self) -> bool:
        with self._turn:
            if (self.running or self.queued) and not self.paused:
                return False
            self.flushed += 1
            return True

    def metrics(self) -> bytes:
        with self._turn:
            at, generated = self._seen
            now = time.monotonic()
            if now - at >= 0.5:
                self._gauges.set("gen_throughput", (self.generated - generated) / (now - at))
                self._seen = (now, self.generated)
            usage = min(self.used / self.max_tokens, 1.0)
            self._gauges.set("token_usage", usage, each_rank=True)
            self._gauges.set("num_queue_reqs", self.queued)
            self._gauges.set("num_running_reqs", self.running)
            self._gauges.set("num_used_tokens", self.used)
            self._gauges.set("max_total_num_tokens", self.max_tokens, each_rank=True)
        return generate_latest(self._registry)

    def _decode(self, number: int, tokens: int, began: float) -> None:
        left = tokens * self.seconds_per_token
        self._first_token.labels(self.name).observe(time.monotonic() - began + self.seconds_per_token)
        while left > 0:
            step = min(left, STEP_SECONDS)
            time.sleep(step)
            self._raise_if_aborted(number)
            if not (self.paused or self.is_held):
                left -= step
        with self._turn:
            self.generated += tokens
            self.served += 1
        self._inter_token.labels(self.name).observe(self.seconds_per_token)

    def _raise_if_aborted(self, number: int) -> None:
        if number <= self._abort_before:
            raise Aborted
