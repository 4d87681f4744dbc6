"""Tests for utilization metrics in Prometheus format."""

import pytest
from django.utils import timezone

from scheduler.models import NodeUtilization
from tests import factories as make
from tests.cast import Cast
from tests.support.scraping import scraped

pytestmark = pytest.mark.django_db


def metric_lines(*names: str) -> list[str]:
    return [line for line in scraped().splitlines() if line.startswith(names)]


def test_utilization_is_exported_by_pool_and_device(cast: Cast) -> None:
    node = make.node(cast.pool)
    work = make.workload(cast.vision, "w", phase="running", run=1)
    make.used(make.place(work, node, [0]), 50, cpu=1500, memory=1024, busy_at=make.ago(hours=2))
    make.used(make.place(work, node, [1]), None, cpu=500, memory=1024, gpu_memory=None)
    NodeUtilization.objects.create(node=node, at=timezone.now(), devices=[[500, 3], [None, None]])
    assert metric_lines("berth_pool_gpus_measured{", "berth_pool_gpus_used{", "berth_pool_cores_",
                "berth_gpu_utilization_ratio{", "berth_gpu_memory_used_bytes{", "berth_workloads_gpus_idle{",
                "berth_pool_memory_used") == [
        'berth_pool_gpus_measured{pool="local"} 1.0',
        'berth_pool_gpus_used{pool="local"} 0.5',
        'berth_pool_cores_allocated{pool="local"} 4.0',
        'berth_pool_cores_used{pool="local"} 2.0',
        'berth_pool_memory_used_bytes{pool="local"} 2.147483648e+09',
        'berth_gpu_utilization_ratio{device="0",node="local-0",pool="local"} 0.5',
        'berth_gpu_memory_used_bytes{device="0",node="local-0",pool="local"} 3.145728e+06',
        'berth_workloads_gpus_idle{pool="local"} 0.0',
    ]  # fmt: skip


@pytest.mark.heavy
def test_unmeasured_utilization_is_not_exported(cast: Cast) -> None:
    work = make.workload(cast.vision, "w", phase="running", run=1)
    make.place(work, make.node(cast.pool), [0])
    assert metric_lines("berth_pool_gpus_used{", "berth_pool_cores_used{", "berth_pool_memory_used_bytes{",
                "berth_gpu_") == []  # fmt: skip
    assert metric_lines("berth_pool_gpus_measured{") == ['berth_pool_gpus_measured{pool="local"} 0.0']


@pytest.mark.heavy
def test_workloads_with_idle_gpus_are_counted(cast: Cast) -> None:
    work = make.workload(cast.vision, "w", phase="running", run=1)
    make.used(make.place(work, make.node(cast.pool), [0]), 1, busy_at=make.ago(hours=2))
    assert metric_lines("berth_workloads_gpus_idle{") == ['berth_workloads_gpus_idle{pool="local"} 1.0']
