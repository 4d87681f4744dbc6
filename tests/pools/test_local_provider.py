"""Tests for nodes that share this machine but no GPU."""

import subprocess
import sys
import types
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pools import services
from pools.models import Node
from pools.providers.base import InstanceState, LaunchRequest, ProviderError, Shape
from pools.providers.hardware import Device, Machine, detect_local_machine, simulated_devices
from pools.providers.local import LocalProvider
from pools.reconciler import reconcile
from tests.pools.stage import START, SYSTEM, pool


def provider(root: Path, gpus: int = 8) -> LocalProvider:
    return LocalProvider(root, Machine(8000, 16384, tuple(Device(f"GPU-{n}") for n in range(gpus))))


def order(token: str, count: int, gpus: int, start: int = 0, pool: str = "local") -> LaunchRequest:
    return LaunchRequest(pool, count, token, start, Shape(1000, 1024, gpus))


def test_local_instances_are_the_same_in_every_process(tmp_path: Path) -> None:
    created = provider(tmp_path).provision(order("t-1", 2, 2)).instances
    assert provider(tmp_path).list_instances("local") == created
    assert provider(tmp_path).provision(order("t-1", 2, 2)).instances == created


def test_capacity_error_states_the_machines_gpu_count(tmp_path: Path) -> None:
    local = provider(tmp_path, gpus=3)
    message = local.provision(order("t-1", 2, 2)).message
    assert message == "this machine has 3 GPUs (1 free); a node needs 2"
    with pytest.raises(ProviderError, match=r"this machine has 3 GPUs \(1 free\)"):
        local.provision(order("t-2", 1, 2, start=1))
    assert local.provision(order("t-3", 1, 1, start=1)).instances[0].devices == ("GPU-2",)


def test_nodes_without_gpus_are_assigned_no_devices(tmp_path: Path) -> None:
    assert len(provider(tmp_path, gpus=0).provision(order("t-1", 5, 0)).instances) == 5


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("order"), st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 3)),
        st.tuples(st.just("end"), st.sampled_from("abc"), st.integers(0, 9), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_no_device_belongs_to_two_nodes(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int, int]]
) -> None:
    root = tmp_path_factory.mktemp("instances")
    for number, (what, owner, n, gpus) in enumerate(steps):
        local = provider(root)
        if what == "order":
            with suppress(ProviderError):
                local.provision(order(f"t-{number}", n, gpus, start=number * 10, pool=owner))
        else:
            living = local.list_instances(owner)
            local.terminate(owner, [instance.instance_id for instance in living[n : n + 1]])
        devices = [
            device
            for name in "abc"
            for instance in local.list_instances(name)
            if instance.state == InstanceState.READY
            for device in instance.devices
        ]
        assert len(devices) == len(set(devices))
        assert set(devices) <= {device.identity for device in local.machine.devices}


def test_concurrent_launch_requests_share_no_device(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from pools.providers.base import ProviderError, LaunchRequest, Shape
from pools.providers.local import LocalProvider
from pools.providers.hardware import Device, Machine
machine = Machine(8000, 16384, tuple(Device(f"GPU-{n}") for n in range(8)))
try:
    order = LaunchRequest("local", 1, sys.argv[2], int(sys.argv[2]), Shape(1000, 1024, 2))
    LocalProvider(Path(sys.argv[1]), machine).provision(order)
except ProviderError:
    sys.exit(3)
"""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", code, str(tmp_path)]
    env = {"PYTHONPATH": f"{root}:{root / 'platform'}"}
    processes = [subprocess.Popen([*command, str(n)], env=env) for n in range(6)]
    assert sorted(process.wait() for process in processes) == [0, 0, 0, 0, 3, 3]
    created = provider(tmp_path).list_instances("local")
    devices = sorted(device for instance in created for device in instance.devices)
    assert devices == [f"GPU-{n}" for n in range(8)]


def test_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = types.ModuleType("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    machine = detect_local_machine()
    assert machine.devices == ()
    assert machine.cpu_milli >= 1000
    assert machine.memory_mib > 256


def test_gpus_are_detected_through_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    nvml = types.SimpleNamespace(
        NVMLError=type("NVMLError", (Exception,), {}),
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: closed.append(True),
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: b"GPU-old" if handle else "GPU-new",
        nvmlDeviceGetName=lambda handle: "NVIDIA A100-SXM4-80GB",
        nvmlDeviceGetMemoryInfo=lambda handle: types.SimpleNamespace(total=81920 * 1024 * 1024),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert detect_local_machine().devices == (
        Device("GPU-new", "A100-SXM4-80GB", 81920),
        Device("GPU-old", "A100-SXM4-80GB", 81920),
    )
    assert closed
    assert detect_local_machine(declared_gpus=2).devices == simulated_devices(2) == (Device("0"), Device("1"))


@pytest.mark.django_db
@pytest.mark.shows("SKY-30", "SKY-61")
def test_local_pool_grows_until_all_devices_are_used(tmp_path: Path) -> None:
    small = pool((0, 8))
    services.set_nodes_desired(actor=SYSTEM, pool=small, nodes_desired=6)
    assert reconcile(small.pk, provider=provider(tmp_path), now=START)
    devices = [device for node in Node.objects.all() for device in node.devices]
    assert sorted(devices) == [f"GPU-{n}" for n in range(8)]
    small.refresh_from_db()
    assert small.last_error.startswith(
        "could not request 2 nodes (capacity): this machine has 8 GPUs (0 free)"
    )
    assert not reconcile(small.pk, provider=provider(tmp_path), now=START), "until the next tick"
