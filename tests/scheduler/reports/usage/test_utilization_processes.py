"""Tests that real schedulers measure real pods and count each second once."""

from pathlib import Path

import pytest
from django.db.models import Sum

from projects.models import Phase, Workload
from scheduler.models import NodeUtilization, PodUtilization, UtilizationPoint
from tests.cast import Cast
from tests.journeys.installation import until
from tests.scheduler.processes.test_processes import Schedulers, cast, phase, schedulers, submit
from tests.support.present import present

__all__ = ["cast", "schedulers"]
pytestmark = pytest.mark.timeout(600)
BUSY = "while [ ! -e {flag} ]; do :; done"


def measured_cpu_seconds(workload: Workload) -> float:
    readings = PodUtilization.objects.filter(pod__workload=workload)
    return readings.aggregate(Sum("cpu_seconds"))["cpu_seconds__sum"] or 0


def stored_cpu_seconds(workload: Workload, step: int) -> float:
    points = UtilizationPoint.objects.filter(pod__workload=workload, step=step)
    return (points.aggregate(Sum("cpu_milli_seconds"))["cpu_milli_seconds__sum"] or 0) / 1000


def fake_nvidia_smi(place: Path) -> Path:
    """Install a fake nvidia-smi."""
    lines = "\\n".join(f"{index}, GPU-{index}, {10 * index}, {1000 + index}" for index in range(8))
    place.write_text(f"#!/bin/sh\nprintf '{lines}\\n'\n")
    place.chmod(0o700)
    return place


@pytest.mark.heavy
def test_pod_utilization_is_measured_across_a_killed_leader(cast: Cast, schedulers: Schedulers) -> None:
    schedulers.env |= {
        "BERTH_MEASURE_SECONDS": "1", "BERTH_GPU_PROBE": str(fake_nvidia_smi(schedulers.home / "smi")),
    }  # fmt: skip
    first = schedulers.start()
    flag = schedulers.pods_directory / "over"
    workload = submit(cast, "busy", BUSY.format(flag=flag), replicas=1)
    until(lambda: phase(workload) == Phase.RUNNING, details=lambda: (workload.reason, workload.message))
    until(lambda: measured_cpu_seconds(workload) > 1)
    schedulers.kill(first)
    before = measured_cpu_seconds(workload)
    schedulers.start()
    until(lambda: measured_cpu_seconds(workload) > before + 1)
    use = PodUtilization.objects.get(pod__workload=workload)
    (device,) = use.pod.allocation.devices
    assert use.devices == [[100 * device, 1000 + device]], "as the probe reported"
    assert [device for device, _ in NodeUtilization.objects.get(node=use.pod.node).devices] == [0, 100]
    flag.touch()
    until(lambda: phase(workload) == Phase.COMPLETED, details=lambda: (workload.reason, workload.message))
    for step in (60, 3600):
        assert stored_cpu_seconds(workload, step) == pytest.approx(
            measured_cpu_seconds(workload), rel=0.05, abs=0.2
        )
    pod = workload.pods.get()
    lasted = (present(pod.ended_at) - present(pod.started_at)).total_seconds()
    assert sum(UtilizationPoint.objects.filter(step=60).values_list("seconds", flat=True)) <= lasted + 1
