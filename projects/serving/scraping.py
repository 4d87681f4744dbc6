"""Scrape all inference engines of a service concurrently."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from projects.engine.replicas.readings import MetricReading, MetricsSample
from projects.serving.base import EngineAdapter, ErrorKind, ServingError
from projects.serving.metrics import parse_metrics

MAX_CONCURRENT = 16


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    engine: str
    address: str
    adapter: EngineAdapter


@dataclass(frozen=True, slots=True)
class Scrape:
    """Sample of a service's metrics.

    `errors` contains the error of each engine that is missing from the sample, keyed by engine ID.
    """

    sample: MetricsSample
    errors: dict[str, ServingError]


def scrape(targets: Sequence[ScrapeTarget], *, now: Callable[[], float], seconds: float) -> Scrape:
    """Scrape all targets. Inference engines that do not respond within `seconds` have no reading."""
    at, deadline = now(), time.monotonic() + seconds
    pool = ThreadPoolExecutor(max(1, min(len(targets), MAX_CONCURRENT)), thread_name_prefix="scrape")
    try:
        requests = [(target, pool.submit(_scrape_one, target, deadline)) for target in targets]
        wait([future for _, future in requests], timeout=max(deadline - time.monotonic(), 0))
        results = [
            (target, future.result() if future.done() and not future.cancelled() else _timeout_error(target))
            for target, future in requests
        ]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    readings = tuple(outcome for _, outcome in results if isinstance(outcome, MetricReading))
    errors = {target.engine: outcome for target, outcome in results if isinstance(outcome, ServingError)}
    return Scrape(MetricsSample(at, tuple(target.engine for target in targets), readings), errors)


def _scrape_one(target: ScrapeTarget, deadline: float) -> MetricReading | ServingError:
    if time.monotonic() >= deadline:
        return _timeout_error(target)
    try:
        return parse_metrics(target.engine, target.adapter.metrics(target.address))
    except ServingError as error:
        return error


def _timeout_error(target: ScrapeTarget) -> ServingError:
    return ServingError(ErrorKind.TIMEOUT, target.address, "the metrics did not arrive in time")
