"""Partitions and machines of a Slurm cluster, parsed from sinfo's output."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pools.providers.base import Shape
from pools.providers.preview import PreviewedNode
from pools.providers.slurm.jobs import parse_time

FIELDS = (
    "Partition", "Available", "DefaultTime", "Time", "NodeList", "StateLong", "CPUsState", "Memory",
    "AllocMem", "Gres", "GresUsed", "Features", "Reason",
)  # fmt: skip
FORMAT = ",".join(f"{name}:|" for name in FIELDS)
UNUSABLE = ("down", "drain", "fail", "maint", "unknown", "future", "error", "no_respond", "powered_down")
_GPUS = re.compile(r"gpu(?::([A-Za-z][A-Za-z0-9_.-]*))?:(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Partition:
    """Partition of a Slurm cluster. Times are in seconds, and None means no limit."""

    name: str
    is_default: bool
    is_up: bool
    default_time: int | None
    time_limit: int | None
    nodes: tuple[PreviewedNode, ...] = ()


def parse_partitions(output: str) -> Iterator[Partition]:
    """Yield the partitions in sinfo's output with their machines."""
    rows: dict[str, list[dict[str, str]]] = {}
    for line in output.splitlines():
        values = [value.strip() for value in line.split("|")]
        if len(values) > len(FIELDS):
            row = dict(zip(FIELDS, values, strict=False))
            rows.setdefault(row["Partition"], []).append(row)
    for name, machines in rows.items():
        first = machines[0]
        yield Partition(
            name.rstrip("*"), name.endswith("*"), first["Available"] == "up",
            parse_time(first["DefaultTime"]), parse_time(first["Time"]),
            tuple(_previewed_node(row) for row in machines if row["NodeList"]),
        )  # fmt: skip


def _previewed_node(row: dict[str, str]) -> PreviewedNode:
    allocated, _, _, total = ([int(part) for part in row["CPUsState"].split("/")] + [0] * 4)[:4]
    state = row["StateLong"]
    return make_machine(
        row["NodeList"], state.rstrip("*~#!%$@^-+"), cores=(allocated, total),
        memory_mib=(_to_int(row["AllocMem"]), _to_int(row["Memory"])), gres=(row["GresUsed"], row["Gres"]),
        reason="" if row["Reason"] == "none" else row["Reason"],
        features="" if row["Features"] == "(null)" else row["Features"], is_silent=state.endswith("*"),
    )  # fmt: skip


def make_machine(
    name: str, state: str, *, cores: tuple[int, int], memory_mib: tuple[int, int], gres: tuple[str, str],
    reason: str, features: str, is_silent: bool,
) -> PreviewedNode:  # fmt: skip
    """Return a machine for a preview.

    `state` is in lower case. `cores`, `memory_mib` and `gres` are pairs of the used amount and the total.
    """
    model, gpus = _parse_gpus(gres[1])
    _, used_gpus = _parse_gpus(gres[0])
    is_unusable = is_silent or any(word in state for word in UNUSABLE)
    explanation = f": {reason}" if reason else ""
    return PreviewedNode(
        name, Shape(cores[1] * 1000, memory_mib[1], gpus, model),
        Shape(cores[0] * 1000, memory_mib[0], used_gpus),
        obstacle=f"Slurm reports {state}{explanation}" if is_unusable else "",
        details=f"{state}, {features}" if features else state,
    )  # fmt: skip


def _parse_gpus(text: str) -> tuple[str, int]:
    """Return the GPU model and count in a text such as gpu:a100:4(S:0-1),nvme:2."""
    devices = _GPUS.findall(text)
    models = [model for model, _ in devices if model]
    return (models[0] if models else ""), sum(int(number) for _, number in devices)


def _to_int(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def partition_names(partitions: Sequence[Partition]) -> list[str]:
    return [partition.name for partition in partitions]
