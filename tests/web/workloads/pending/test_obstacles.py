"""Tests for the reasons of a pending workload and how they are joined."""

from typing import Any

import pytest

from scheduler.web.workloads.details import build_obstacles, split_obstacles
from tests.support.present import present

ABOVE_SHARE: dict[str, Any] = {
    "reason": "WouldExceedFairShare",
    "message": "With this workload, vision would have 12 GPUs allocated. Only free capacity can be used.",
    "numbers": {
        "resource": "gpu", "queue": "vision", "allocated": 8000, "requested": 4000, "bound": 8000,
        "share": 8000, "quota": 4000,
    },
}  # fmt: skip
TOTAL = "vision would have 12 GPUs, more than its fair share of 8, so only free capacity can be used."
GPUS = {"resource": "gpu", "requested": 4000, "free": 1000}
REPLICAS = {"resource": "replicas", "requested": 4, "free": 0}


@pytest.mark.parametrize(
    ("shortage", "numbers", "expected"),
    [
        ("Needs 4 GPUs, 1 is free.", GPUS, f"Needs 4 GPUs, 1 is free. {TOTAL}"),
        (
            "Needs 4 GPUs, 1 is free; also missing: 4 CPUs.",
            GPUS,
            f"Needs 4 GPUs, 1 is free. {TOTAL} Also missing: 4 CPUs.",
        ),
        (
            "No matching node is ready for 4 replicas.",
            REPLICAS,
            f"{TOTAL} No matching node is ready for 4 replicas.",
        ),
    ],
)
def test_capacity_shortage_is_merged_into_the_fair_share_reason(
    shortage: str, numbers: dict[str, Any], expected: str
) -> None:
    waiting = {"reason": "WaitingForCapacity", "message": shortage, "numbers": numbers}
    decisive, others = split_obstacles(build_obstacles([ABOVE_SHARE, waiting]))
    assert (present(decisive).message, others) == (expected, [])
