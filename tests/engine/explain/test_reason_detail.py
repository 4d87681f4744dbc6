"""Tests for the numbers in pending reasons on pages, in the workload list and in messages."""

from typing import Any

import pytest

from scheduler.engine.explain.reason_detail import reason_detail, reason_sentence
from scheduler.engine.plan import Reason

BOUND = {"resource": "gpu", "queue": "vision", "allocated": 12_000, "requested": 6000, "bound": 16_000}
FREE = {"resource": "gpu", "requested": 6000, "free": 1250, "missing": 4750}
MEMORY = {"resource": "memory_mib", "requested": 6144, "free": 4096}


@pytest.mark.parametrize(("blockers", "detail"), [
    ([(Reason.WAITING_FOR_CAPACITY, FREE)], "needs 6 GPUs, 1.25 are free"),
    ([(Reason.WAITING_FOR_CAPACITY, {**FREE, "free": 1000})], "needs 6 GPUs, 1 is free"),
    ([(Reason.WAITING_FOR_CAPACITY, {**FREE, "free": 0})], "needs 6 GPUs, none are free"),
    ([(Reason.WAITING_FOR_CAPACITY, {"resource": "gpu", "requested": 1000, "free": 0})],
     "needs 1 GPU, none is free"),
    ([(Reason.WAITING_FOR_CAPACITY, MEMORY)], "needs 6 GiB of memory, 4 GiB is free"),
    ([(Reason.WAITING_FOR_CAPACITY, {**FREE, "resource": "pods"})], ""),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, BOUND), (Reason.WAITING_FOR_CAPACITY, FREE)],
     "vision would have 18 of 16 GPUs"),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, {**BOUND, "bound": 0, "allocated": 0})],
     "vision would have 6 of 0 GPUs"),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, {**BOUND, "resource": "cpu"})], "vision would have 18 of 16 CPUs"),
    ([(Reason.PROJECT_LIMIT, BOUND), (Reason.WAITING_FOR_CAPACITY, FREE)], "vision would have 18 of 16 GPUs"),
    ([(Reason.DEPARTMENT_LIMIT, {**BOUND, "resource": "memory_mib", "requested": 6144, "allocated": 12288,
                                 "bound": 16384})],
     "vision would have 18 GiB of 16 GiB of memory"),
    ([(Reason.NON_PREEMPTIBLE_OVER_QUOTA, {**BOUND, "bound": 13_000})],
     "vision would have 18 of 13 GPUs for non-preemptible workloads"),
    ([(Reason.DEPARTMENT_OVERSOLD, BOUND)], "vision would have 18 of 16 GPUs for non-preemptible workloads"),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, {**BOUND, "share": 14_000, "quota": 16_000})],
     "vision would have 18 of its quota of 16 GPUs"),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, {**BOUND, "share": 16_000, "quota": 8000})],
     "vision would have 18 of 16 GPUs"),
    ([(Reason.NON_PREEMPTIBLE_OVER_QUOTA, {**BOUND, "held": 3000, "behind": "vision/large"})], ""),
    ([(Reason.PROJECT_LIMIT, {})], ""),
    ([(Reason.SUSPENDED, {})], ""),
    ([], ""),
])  # fmt: skip
def test_detail_of_a_pending_reason_states_its_numbers(
    blockers: list[tuple[str, dict[str, Any]]], detail: str
) -> None:
    assert reason_detail(blockers) == detail


MORE = "vision would have 18 GPUs, more than its fair share of 16"


@pytest.mark.parametrize(("blockers", "sentence"), [
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, BOUND), (Reason.WAITING_FOR_CAPACITY, FREE)],
     f"Needs 6 GPUs, 1.25 are free. {MORE}, so only free capacity can be used."),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, BOUND), (Reason.WAITING_FOR_CAPACITY, MEMORY)],
     f"Needs 6 GiB of memory, 4 GiB is free. {MORE}, so only free capacity can be used."),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, {**BOUND, "takes_turns": True}), (Reason.FRAGMENTED, FREE)],
     f"{MORE}, so only free capacity can be used until decayed usage makes it the queue's turn."),
    ([(Reason.WOULD_EXCEED_FAIR_SHARE, {**BOUND, "share": 14_000, "quota": 16_000})],
     "vision would have 18 GPUs, more than its quota of 16, so only free capacity can be used."),
    ([(Reason.PROJECT_LIMIT, BOUND)], "vision would have 18 GPUs, more than its limit of 16."),
    ([(Reason.DEPARTMENT_LIMIT, {**BOUND, "resource": "memory_mib", "requested": 6144, "allocated": 12288,
                                 "bound": 16384})],
     "vision would have 18 GiB of memory, more than its limit of 16 GiB."),
    ([(Reason.NON_PREEMPTIBLE_OVER_QUOTA, {**BOUND, "bound": 13_000})],
     "vision would have 18 GPUs for non-preemptible workloads, more than its quota of 13."),
    ([(Reason.NON_PREEMPTIBLE_OVER_QUOTA, {**BOUND, "held": 3000, "behind": "vision/large"})], ""),
    ([(Reason.WAITING_FOR_CAPACITY, FREE)], ""),
    ([(Reason.PROJECT_LIMIT, {})], ""),
    ([], ""),
])  # fmt: skip
def test_pending_reason_states_the_missing_resource_and_the_exceeded_bound(
    blockers: list[tuple[str, dict[str, Any]]], sentence: str
) -> None:
    assert reason_sentence(blockers) == sentence
