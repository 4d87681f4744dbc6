"""Tests for the demo organization on machines with and without GPUs."""

import pytest

from pools.models import NodePool
from pools.providers.hardware import Device, Machine, simulated_devices
from projects.models import Quota
from projects.services import demo

GIB = 1024


def machine(gpus: int) -> Machine:
    return Machine(16_000, 160 * GIB, tuple(Device(f"GPU-{n}", "H100", 80 * GIB) for n in range(gpus)))


def simulated(gpus: int) -> Machine:
    return Machine(16_000, 160 * GIB, simulated_devices(gpus))


def seeded(machine: Machine) -> tuple[tuple[int, ...], dict[str, float]]:
    """Seed the demo. Return the pool's nodes, GPUs, CPUs and GiB, and each owner's quota in GPUs."""
    demo.seed_demo(machine)
    pool = NodePool.objects.get()
    assert pool.nodes_max is not None
    assert pool.cpu_milli is not None
    assert pool.memory_mib is not None
    quotas = {quota.owner.name: (quota.gpu_milli or 0) / 1000 for quota in Quota.objects.all()}
    return (pool.nodes_max, pool.gpus_per_node, pool.cpu_milli // 1000, pool.memory_mib // GIB), quotas


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("gpus", "pool"), [(0, (4, 2, 4, 4)), (1, (1, 1, 16, 144)), (3, (3, 1, 5, 48)), (16, (8, 2, 2, 18))]
)
def test_demo_nodes_share_the_resources_of_the_machine(gpus: int, pool: tuple[int, ...]) -> None:
    assert seeded(machine(gpus))[0] == pool


@pytest.mark.django_db
@pytest.mark.parametrize(("gpus", "pool"), [(5, (5, 1, 4, 4)), (8, (4, 2, 4, 4)), (32, (16, 2, 4, 4))])
def test_nodes_with_simulated_gpus_have_a_fixed_size(gpus: int, pool: tuple[int, ...]) -> None:
    assert seeded(simulated(gpus))[0] == pool


@pytest.mark.django_db
@pytest.mark.parametrize("gpus", [0, 1, 3, 8, 16])
def test_demo_quotas_add_up_to_the_pools_gpus(gpus: int) -> None:
    quotas = seeded(machine(gpus))[1]
    assert quotas["research"] + quotas["product"] == (gpus or 8)
    assert quotas["vision"] + quotas["speech"] == quotas["research"]
    assert quotas["ads"] + quotas["search"] == quotas["product"]


@pytest.mark.django_db
def test_every_demo_limit_admits_a_workload_with_one_gpu() -> None:
    demo.seed_demo(machine(1))
    assert {quota.limit_gpu_milli for quota in Quota.objects.all()} == {None, 1000}
