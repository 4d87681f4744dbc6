"""Convert a `kind: TrainingJob` manifest to a workload document.

A role without an entrypoint idles until the roles with an entrypoint have completed. Only the trainer is
elastic.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from berth.core.problems import Problem, path_of, shown, suggestion
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
# Document keys, and the manifest paths that may set them.
METADATA_KEYS = {"name": "metadata.name", "project": "metadata.namespace", "labels": "metadata.labels"}
ROLE_KEYS = {
    "command": ("entrypoint",),
    "min": ("min-instance",),
    "max": ("max-instance",),
    "gpu": tuple(f"resources.{kind}.{key}" for kind in ("limits", "requests") for key in GPU_KEYS),
    "cpu": ("resources.requests.cpu", "resources.limits.cpu"),
    "memory_mib": ("resources.requests.memory", "resources.limits.memory"),
    "limit.cpu": ("resources.limits.cpu",),
    "limit.memory_mib": ("resources.limits.memory",),
}

Location = tuple[str | int, ...]


def is_manifest(data: Mapping[Any, Any]) -> bool:
    return data.get("kind") == KIND


def translated(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a workload document with one role per manifest part. Raises SpecError with every problem."""
    problems: list[Problem] = []
    _check_keys(problems, (), data, TOP)
    metadata = _part(problems, data, "metadata", METADATA)
    spec = _part(problems, data, "spec", tuple(PARTS))
    if "trainer" not in spec:
        problems.append(Problem("spec.trainer", "missing", "", "the trainer's description"))
    roles = [_role(problems, part, spec) for part in PARTS if part in spec]
    if "trainer" in spec and "command" not in roles[0]:
        allowed = "a line for the shell, or a list of arguments"
        problems.append(Problem("spec.trainer.entrypoint", "missing", "", allowed))
    if problems:
        raise SpecError(problems)
    first = roles[0]
    kind = "elastic" if first["min"] != first["max"] else "training"
    document: dict[str, Any] = {"name": metadata.get("name"), "kind": kind, "roles": roles}
    optional = {
        "project": metadata.get("namespace"), "labels": metadata.get("labels"),
        "workspace": first.pop("workspace", None),
    }  # fmt: skip
    return document | {key: value for key, value in optional.items() if value is not None}


def in_manifest(problems: Iterable[Problem], data: Mapping[Any, Any]) -> list[Problem]:
    """Replace the document paths of the problems by the paths in the manifest."""
    parts = [part for part in PARTS if part in data["spec"]]
    return [replace(problem, path=_manifest_path(problem.path, parts, data)) for problem in problems]


def _manifest_path(path: str, parts: list[str], data: Mapping[Any, Any]) -> str:
    if path in ("roles", "workspace"):
        return "spec" if path == "roles" else "spec.trainer.workspace"
    if match := re.fullmatch(r"roles\[(\d+)\]\.(.+)", path):
        part, key = parts[int(match[1])], match[2]
        places = ROLE_KEYS.get(key, (key,))
        written = next((place for place in places if _has_path(data["spec"][part], place)), places[0])
        return f"spec.{part}.{written}"
    key = next((key for key in METADATA_KEYS if re.match(rf"{key}\b", path)), "")
    return METADATA_KEYS[key] + path.removeprefix(key) if key else path


def _has_path(part: Mapping[str, Any], path: str) -> bool:
    value: Any = part
    for key in path.split(".", 2):
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True


def _role(problems: list[Problem], part: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    described = _part(problems, spec, part, PARTS[part], ("spec",))
    at: Location = ("spec", part)
    least, most = (_count(problems, (*at, key), described.get(key, 1)) for key in BOUNDS)
    if "max-instance" not in described:
        most = least
    if least > most:
        where = path_of((*at, BOUNDS[0]))
        problems.append(Problem(where, "above max-instance", f"{least}", f"at most {most}"))
    # Parameter servers are not scaled. They always run at their minimum.
    top = most if part == "trainer" else max(least, 1)
    role: dict[str, Any] = {"name": part, "min": least, "max": top}
    if described.get("entrypoint") is not None:
        role["command"] = described["entrypoint"]
    elif part != "trainer":
        role["idle"] = True
    if described.get("workspace") is not None:
        role["workspace"] = described["workspace"]
    return role | _resources(problems, (*at, "resources"), described.get("resources"))


def _resources(problems: list[Problem], at: Location, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(Problem(path_of(at), "is not keys and values", shown(value), "limits and requests"))
        return {}
    _check_keys(problems, at, value, ("limits", "requests"))
    limits, requests = (_part(problems, value, key, RESOURCES, at) for key in ("limits", "requests"))
    role: dict[str, Any] = {}
    gpus = [source[key] for source in (limits, requests) for key in GPU_KEYS if key in source]
    if gpus:
        role["gpu"] = _whole(gpus[0])
    if any(_whole(gpu) != _whole(gpus[0]) for gpu in gpus):
        where, received = path_of((*at, "requests")), ", ".join(map(shown, gpus))
        problems.append(Problem(where, "differ in GPUs", received, "the same number as in limits"))
    for key, ours in (("cpu", "cpu"), ("memory", "memory_mib")):
        if key in limits or key in requests:
            role[ours] = _quantity(ours, requests.get(key, limits.get(key)))
        if key in limits:
            role.setdefault("limit", {})[ours] = _quantity(ours, limits[key])
    return role


def _whole(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def _quantity(ours: str, value: object) -> object:
    """Return the value in Berth's unit. Memory without a unit means bytes in a manifest and MiB in Berth."""
    if ours != "memory_mib" or isinstance(value, bool):
        return value
    if isinstance(value, int) and value >= 0:
        return -(-value // 2**20)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return -(-int(value[:18]) // 2**20)
    return value


def _count(problems: list[Problem], at: Location, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    problems.append(Problem(path_of(at), "is not a number of instances", shown(value), "0 or more"))
    return 0


def _part(
    problems: list[Problem], owner: Mapping[str, Any], key: str, allowed: tuple[str, ...], at: Location = ()
) -> Mapping[str, Any]:
    part = owner.get(key)
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        problems.append(
            Problem(path_of((*at, key)), "is not keys and values", shown(part), ", ".join(allowed))
        )
        return {}
    _check_keys(problems, (*at, key), part, allowed)
    return part


def _check_keys(
    problems: list[Problem], at: Location, part: Mapping[Any, Any], allowed: tuple[str, ...]
) -> None:
    for key in part:
        if key not in allowed:
            where = path_of((*at, str(key)))
            problems.append(Problem(where, "unknown key", shown(key), suggestion(str(key), allowed)))
