"""Here we read an older system's elastic training manifest (`kind: TrainingJob`) as our document."""

from collections.abc import Mapping
from typing import Any

from berth.core.problems import Problem, nearest, path_of, shown
from berth.core.spec.refusal import SpecError

KIND = "TrainingJob"
TOP = ("apiVersion", "kind", "metadata", "spec")
METADATA = ("name", "namespace", "labels")
GPU_KEYS = ("alpha.kubernetes.io/nvidia-gpu", "nvidia.com/gpu")
RESOURCES = (*GPU_KEYS, "cpu", "memory")
BOUNDS = ("min-instance", "max-instance")
PARTS = {
    "trainer": ("entrypoint", "workspace", *BOUNDS, "resources"),
    "pserver": ("entrypoint", "workspace", *BOUNDS, "resources"),
    "master": ("entrypoint", "workspace", "resources"),
}

Location = tuple[str | int, ...]


def is_manifest(data: Mapping[Any, Any]) -> bool:
    return data.get("kind") == KIND


def translated(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Our document for it: one role for each part; only the trainer is elastic."""
    problems: list[Problem] = []
    _known_keys(problems, (), data, TOP)
    metadata = _part(problems, data, "metadata", METADATA)
    spec = _part(problems, data, "spec", tuple(PARTS))
    if "trainer" not in spec:
        problems.append(Problem("spec.trainer", "missing", "", "the trainer's description"))
    roles = [_role(problems, part, spec) for part in PARTS if part in spec]
    if problems:
        raise SpecError(problems)
    first = roles[0]
    kind = "elastic" if first["min"] != first["max"] else "training"
    document: dict[str, Any] = {"name": metadata.get("name"), "kind": kind, "roles": roles}
    workspace = spec["trainer"].get("workspace")
    optional = {
        "project": metadata.get("namespace"), "labels": metadata.get("labels"), "working_dir": workspace,
    }  # fmt: skip
    return document | {key: value for key, value in optional.items() if value is not None}


def _role(problems: list[Problem], part: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    described = _part(problems, spec, part, PARTS[part], ("spec",))
    at: Location = ("spec", part)
    least, most = (_count(problems, (*at, key), described.get(key, 1)) for key in BOUNDS)
    if "max-instance" not in described:
        most = least
    if least > most:
        where = path_of((*at, BOUNDS[0]))
        problems.append(Problem(where, "above max-instance", f"{least}", f"at most {most}"))
    # Parameter servers are not scaled: they run with their minimum, which lies between their bounds.
    top = most if part == "trainer" else max(least, 1)
    role: dict[str, Any] = {"name": part, "min": least, "max": top}
    if "entrypoint" in described:
        role["command"] = described["entrypoint"]
    return role | _resources(problems, (*at, "resources"), described.get("resources"))


def _resources(problems: list[Problem], at: Location, given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        problems.append(Problem(path_of(at), "is not keys and values", shown(given), "limits and requests"))
        return {}
    _known_keys(problems, at, given, ("limits", "requests"))
    limits, requests = (_part(problems, given, key, RESOURCES, at) for key in ("limits", "requests"))
    role: dict[str, Any] = {}
    gpu = next((source[key] for source in (limits, requests) for key in GPU_KEYS if key in source), None)
    if gpu is not None:
        role["gpu"] = int(gpu) if isinstance(gpu, str) and gpu.isascii() and gpu.isdigit() else gpu
    for key, ours in (("cpu", "cpu"), ("memory", "memory_mib")):
        if key in limits or key in requests:
            role[ours] = _quantity(ours, requests.get(key, limits.get(key)))
        if key in limits:
            role.setdefault("limit", {})[ours] = _quantity(ours, limits[key])
    return role


def _quantity(ours: str, given: object) -> object:
    """Memory without a unit is bytes there and MiB here."""
    if ours != "memory_mib" or isinstance(given, bool):
        return given
    if isinstance(given, int) and given >= 0:
        return -(-given // 2**20)
    if isinstance(given, str) and given.isascii() and given.isdigit():
        return -(-int(given[:18]) // 2**20)
    return given


def _count(problems: list[Problem], at: Location, given: object) -> int:
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    problems.append(Problem(path_of(at), "is not a number of instances", shown(given), "0 or more"))
    return 0


def _part(
    problems: list[Problem], owner: Mapping[str, Any], key: str, known: tuple[str, ...], at: Location = ()
) -> Mapping[str, Any]:
    part = owner.get(key)
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        problems.append(Problem(path_of((*at, key)), "is not keys and values", shown(part), ", ".join(known)))
        return {}
    _known_keys(problems, (*at, key), part, known)
    return part


def _known_keys(
    problems: list[Problem], at: Location, part: Mapping[Any, Any], known: tuple[str, ...]
) -> None:
    for key in part:
        if key not in known:
            meant = nearest(str(key), known)
            allowed = f"{meant}?" if meant else ", ".join(known)
            problems.append(Problem(path_of((*at, str(key))), "unknown key", shown(key), allowed))
