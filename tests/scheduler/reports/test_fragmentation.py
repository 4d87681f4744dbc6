"""Tests for the fragmentation report on free GPUs."""

from scheduler.models import Reservation
from scheduler.reports.fragmentation import (
    FragmentationLevel,
    build_fragmentation,
    measure_fragmentation,
)
from tests import factories as make
from tests.scheduler.stage import Stage


def test_nodes_are_counted_by_free_gpus() -> None:
    report = build_fragmentation([0, 3, 3, 4], 4)
    assert report.levels == (
        FragmentationLevel(0, 1, 0),
        FragmentationLevel(1, 0, 10),
        FragmentationLevel(2, 0, 4),
        FragmentationLevel(3, 2, 3),
        FragmentationLevel(4, 1, 1),
    )
    assert (report.free_devices, report.nodes) == (10, 4)
    assert report.largest_fitting_level == FragmentationLevel(4, 1, 1)


def test_no_gang_fits_without_free_gpus() -> None:
    assert build_fragmentation([0, 0], 8).largest_fitting_level is None
    assert build_fragmentation([], 2).levels == (
        FragmentationLevel(0, 0, 0),
        FragmentationLevel(1, 0, 0),
        FragmentationLevel(2, 0, 0),
    )


def test_fragmentation_report_lists_powers_of_two_and_the_free_gpu_counts_of_large_nodes() -> None:
    assert [level.gpus for level in build_fragmentation([33, 64], 64).levels] == [
        0,
        1,
        2,
        4,
        8,
        16,
        32,
        33,
        64,
    ]


def test_shared_and_reserved_devices_do_not_count_as_free(stage: Stage) -> None:
    pool = make.pool("pieces", gpus=4)
    node = make.node(pool)
    make.node(pool, state="cordoned")
    work = make.workload(stage.cast.vision, "part", gpus=0.25)
    make.place(work, node, [0], milli=250)
    Reservation.objects.create(workload=work, role="other", index=0, node=node, devices=[3], gpu_milli=1000)
    report = measure_fragmentation(pool)
    assert (report.nodes, report.free_devices, report.partial_milli) == (1, 2, 750)
    assert report.largest_fitting_level == FragmentationLevel(2, 1, 1)
