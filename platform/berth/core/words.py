"""Format counted nouns with the correct plural."""

from berth.core.amounts import MILLI

_UNITS = {"gpu": "GPU", "cpu": "CPU", "pods": "pod", "replicas": "replica",
          "memory_mib": "MiB of memory", "gpu_memory_mib": "MiB of GPU memory"}  # fmt: skip
UNSAID = frozenset({"resource", "until"})  # blocker values for programs, not for messages
_WHOLE = ("pods", "replicas")
_MIB = ("memory_mib", "gpu_memory_mib")


def counted(number: float, one: str, many: str = "") -> str:
    """Return text such as 1 node, 2 nodes, 0 nodes or 2.5 GPUs."""
    return f"{figure(number)} {one if number == 1 else many or one + 's'}"


def amount(resource: str, value: int | None) -> str:
    """Format an amount in the engine's units: 1 GPU, 2.5 CPUs, no GPU, 300 MiB of memory."""
    unit = _UNITS.get(resource, resource)
    if value is None:
        return f"any amount of{unit.partition(' of')[2]}" if resource in _MIB else f"any number of {unit}s"
    if not value:
        return f"no {unit.partition(' of ')[2] or unit}"
    if resource in _MIB:
        return f"{figure(value)} {unit}"
    return counted(value if resource in _WHOLE else value / MILLI, unit)


def gpus(milli: int | None) -> str:
    return amount("gpu", milli)


def figure(number: float) -> str:
    """Format a number with at most three decimals: 8 rather than 8.0."""
    return f"{number:.3f}".rstrip("0").rstrip(".") if number % 1 else f"{int(number)}"


def article(spoken: str) -> str:
    """Return "a" or "an": a 4-GPU workload, an 8-GPU workload."""
    return "an" if spoken.startswith("8") or spoken in ("11", "18") else "a"
