"""Detect the CPUs, memory and GPUs of this machine."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Device:
    """GPU, identified in CUDA_VISIBLE_DEVICES by `identity`."""

    identity: str
    model: str = ""
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    cpu_milli: int
    memory_mib: int
    devices: tuple[Device, ...]
    address: str = "127.0.0.1"


def detect_local_machine(declared_gpus: int = 0) -> Machine:
    """Return this machine's CPUs, memory and GPUs.

    If `declared_gpus` is not 0, return that many simulated GPUs instead of the real ones.
    """
    devices = simulated_devices(declared_gpus) if declared_gpus else tuple(_nvml_devices())
    return Machine(_cpu_milli(), _memory_mib(), devices)


def simulated_devices(count: int) -> tuple[Device, ...]:
    return tuple(Device(str(index)) for index in range(count))


def _nvml_devices() -> Iterator[Device]:
    """Yield the NVIDIA GPUs in PCI order, or none if the driver does not work."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no GPU is usable, whatever the error
        return
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
        for handle in handles:
            memory = pynvml.nvmlDeviceGetMemoryInfo(handle).total // MIB
            yield Device(_decode(pynvml.nvmlDeviceGetUUID(handle)), _device_model(handle), int(memory))
    except pynvml.NVMLError:
        return
    finally:
        pynvml.nvmlShutdown()


def _device_model(handle: object) -> str:
    """Return the model without the vendor: NVIDIA A100-SXM4-80GB becomes A100-SXM4-80GB."""
    import pynvml

    return re.sub(r"^(NVIDIA|Tesla)\s+", "", _decode(pynvml.nvmlDeviceGetName(handle)))


def _decode(value: str | bytes) -> str:
    """Decode the bytes that older NVML bindings return."""
    return value.decode() if isinstance(value, bytes) else value


def _cpu_milli() -> int:
    return len(os.sched_getaffinity(0)) * 1000


def _memory_mib() -> int:
    match = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(match[1]) // 1024 if match else 0
