"""Scrape all engines of a service concurrently."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from projects.engine.replicas.readings import Reading, Sample
from projects.serving.base import EngineAdapter, ServingError, Trouble
from projects.serving.metrics import reading

MOST_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Target:
    """One engine of a service: its id, how to talk to it, where."""

    engine: str
    address: str
    adapter: EngineAdapter


@dataclass(frozen=True, slots=True)
class Scrape:
    """`troubles`: why engines are missing in the sample, by id."""

    sample: Sample
    troubles: dict[str, ServingError]


def scrape(targets: Sequence[Target], *, now: Callable[[], float], seconds: float) -> Scrape:
    """The sample's time is that at which all was asked. Who has not answered after `seconds` is unknown."""
    at, until = now(), time.monotonic() + seconds
    pool = ThreadPoolExecutor(max(1, min(len(targets), MOST_AT_ONCE)), thread_name_prefix="scrape")
    try:
        asked = [(target, pool.submit(_ask, target, until)) for target in targets]
        wait([future for _, future in asked], timeout=max(until - time.monotonic(), 0))
        answers = [
            (target, future.result() if future.done() and not future.cancelled() else _late(target))
            for target, future in asked
        ]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    readings = tuple(answer for _, answer in answers if isinstance(answer, Reading))
    troubles = {target.engine: answer for target, answer in answers if isinstance(answer, ServingError)}
    return Scrape(Sample(at, tuple(target.engine for target in targets), readings), troubles)


def _ask(target: Target, until: float) -> Reading | ServingError:
    """What goes wrong with one engine is an answer about that engine."""
    if time.monotonic() >= until:
        return _late(target)
    try:
        return reading(target.engine, target.adapter.metrics(target.address))
    except ServingError as error:
        return error


def _late(target: Target) -> ServingError:
    return ServingError(Trouble.TIMEOUT, target.address, "it did not tell its metrics in time")
