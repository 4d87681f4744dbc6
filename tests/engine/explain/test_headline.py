"""Tests for the fact that a pending workload's page, list and messages lead with."""

from typing import Any

import pytest

from scheduler.engine.explain.headline import headline
from scheduler.engine.plan import Reason

BOUND = {"resource": "gpu", "queue": "vision", "allocated": 12_000, "requested": 6000, "bound": 16_000}
FREE = {"resource": "gpu", "requested": 6000, "free": 1250, "missing": 4750}


@pytest.mark.parametrize(("blockers", "fact"), [
    ([(Reason.WAITING_FOR_CAPACITY, FREE)], "Needs 6 GPUs, 1.25 are free"),
    ([(Reason.WAITING_FOR_CAPACITY, {**FREE, "free": 1000})], "Needs 6 GPUs, 1 is free"),
    ([(Reason.WAITING_FOR_CAPACITY, {**FREE, "free": 0})], "Needs 6 GPUs, none are free"),
    ([(Reason.WAITING_FOR_CAPACITY, {"resource": "gpu", "requested": 1000, "free": 0})],
     "Needs 1 GPU, none is free"),
    ([(Reason.WAITING_FOR_CAPACITY, {"resource": "memory_mib", "requested": 6144, "free": 4096})],
     "Needs 6 GiB of memory, 4 GiB is free"),
    ([(Reason.WAITING_FOR_CAPACITY, {**FREE, "resource": "pods"})], ""),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, BOUND), (Reason.WAITING_FOR_CAPACITY, FREE)],
     "Needs 6 GPUs, 1.25 are free"),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, {**BOUND, "bound": 11_000})],
     "Needs 6 GPUs, none are left of vision's fair share (11)"),
    ([(Reason.PROJECT_LIMIT, BOUND), (Reason.WAITING_FOR_CAPACITY, FREE)],
     "Needs 6 GPUs, 4 are left of vision's limit (16)"),
    ([(Reason.NON_PREEMPTIBLE_OVER_QUOTA, {**BOUND, "bound": 13_000})],
     "Needs 6 GPUs, 1 is left of vision's quota for non-preemptible workloads (13)"),
    ([(Reason.DEPARTMENT_OVERSOLD, BOUND)],
     "Needs 6 GPUs, 4 are left of vision's quota for non-preemptible workloads (16)"),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, {**BOUND, "share": 14_000, "quota": 16_000})],
     "Needs 6 GPUs, 4 are left of vision's quota (16)"),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, {**BOUND, "share": 16_000, "quota": 8000})],
     "Needs 6 GPUs, 4 are left of vision's fair share (16)"),
    ([(Reason.NON_PREEMPTIBLE_OVER_QUOTA, {**BOUND, "held": 3000, "behind": "vision/large"})], ""),
    ([(Reason.PROJECT_LIMIT, {})], ""),
    ([(Reason.SUSPENDED, {})], ""),
    ([], ""),
])  # fmt: skip
def test_fact_states_what_is_needed_and_what_is_left(
    blockers: list[tuple[str, dict[str, Any]]], fact: str
) -> None:
    assert headline(blockers) == fact
