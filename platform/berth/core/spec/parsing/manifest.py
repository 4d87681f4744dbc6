"""Convert a `kind: TrainingJob` manifest to a workload document.

Roles without an entrypoint stay idle until the others have completed. Only the trainer is elastic.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from berth.core.problems import Problem, format_value, join_path, suggest
from berth.core.spec.parsing.rejection import SpecError

KIND = "TrainingJob"
TOP_LEVEL = ("apiVersion", "kind", "metadata", "spec")
METADATA = ("name", "namespace", "labels")
GPU_KEYS = ("alpha.kubernetes.io/nvidia-gpu", "nvidia.com/gpu")
RESOURCES = (*GPU_KEYS, "cpu", "memory")
BOUNDS = ("min-instance", "max-instance")
PARTS = {
    "trainer": ("entrypoint", "workspace", *BOUNDS, "resources"),
    "pserver": ("entrypoint", "workspace", *BOUNDS, "resources"),
    "master": ("entrypoint", "workspace", "resources"),
}
# Manifest path of each document key.
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


def to_workload_document(data: Mapping[Any, Any]) -> dict[str, Any]:
    """Convert the manifest to a workload document. Raises SpecError with all problems."""
    problems: list[Problem] = []
    _check_keys(problems, (), data, TOP_LEVEL)
    metadata = _read_part(problems, data, "metadata", METADATA)
    spec = _read_part(problems, data, "spec", tuple(PARTS))
    if "trainer" not in spec:
        problems.append(Problem("spec.trainer", "is missing", "", "the trainer's description"))
    roles = [_read_role(problems, part, spec) for part in PARTS if part in spec]
    if "trainer" in spec and "command" not in roles[0]:
        allowed = "a shell command, or a list of arguments"
        problems.append(Problem("spec.trainer.entrypoint", "is missing", "", allowed))
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


def with_manifest_paths(problems: Iterable[Problem], data: Mapping[Any, Any]) -> list[Problem]:
    """Return the problems with document paths replaced by manifest paths."""
    parts = [part for part in PARTS if part in data["spec"]]
    return [replace(problem, path=_manifest_path(problem.path, parts, data)) for problem in problems]


def _manifest_path(path: str, parts: list[str], data: Mapping[Any, Any]) -> str:
    if path in ("roles", "workspace"):
        return "spec" if path == "roles" else "spec.trainer.workspace"
    if match := re.fullmatch(r"roles\[(\d+)\]\.(.+)", path):
        part, key = parts[int(match[1])], match[2]
        manifest_paths = ROLE_KEYS.get(key, (key,))
        used_path = next(
            (
                manifest_path
                for manifest_path in manifest_paths
                if _has_path(data["spec"][part], manifest_path)
            ),
            manifest_paths[0],
        )
        return f"spec.{part}.{used_path}"
    key = next((key for key in METADATA_KEYS if re.match(rf"{key}\b", path)), "")
    return METADATA_KEYS[key] + path.removeprefix(key) if key else path


def _has_path(part: Mapping[str, Any], path: str) -> bool:
    value: Any = part
    for key in path.split(".", 2):
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True


def _read_role(problems: list[Problem], part: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    part_spec = _read_part(problems, spec, part, PARTS[part], ("spec",))
    location: Location = ("spec", part)
    minimum, maximum = (_read_count(problems, (*location, key), part_spec.get(key, 1)) for key in BOUNDS)
    if "max-instance" not in part_spec:
        maximum = minimum
    if minimum > maximum:
        where = join_path((*location, BOUNDS[0]))
        problems.append(Problem(where, "is above max-instance", f"{minimum}", f"at most {maximum}"))
    # Parameter servers are not scaled. Their number always equals their minimum.
    max_replicas = maximum if part == "trainer" else max(minimum, 1)
    role: dict[str, Any] = {"name": part, "min": minimum, "max": max_replicas}
    if part_spec.get("entrypoint") is not None:
        role["command"] = part_spec["entrypoint"]
    elif part != "trainer":
        role["idle"] = True
    if part_spec.get("workspace") is not None:
        role["workspace"] = part_spec["workspace"]
    return role | _read_resources(problems, (*location, "resources"), part_spec.get("resources"))


def _read_resources(problems: list[Problem], location: Location, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(
            Problem(join_path(location), "must be a mapping", format_value(value), "limits and requests")
        )
        return {}
    _check_keys(problems, location, value, ("limits", "requests"))
    limits, requests = (
        _read_part(problems, value, key, RESOURCES, location) for key in ("limits", "requests")
    )
    role: dict[str, Any] = {}
    gpus = [source[key] for source in (limits, requests) for key in GPU_KEYS if key in source]
    if gpus:
        role["gpu"] = _parse_whole_number(gpus[0])
    if any(_parse_whole_number(gpu) != _parse_whole_number(gpus[0]) for gpu in gpus):
        where, received = join_path((*location, "requests")), ", ".join(map(format_value, gpus))
        problems.append(
            Problem(where, "differs from the GPUs in limits", received, "the same number as in limits")
        )
    for key, document_key in (("cpu", "cpu"), ("memory", "memory_mib")):
        if key in limits or key in requests:
            role[document_key] = _convert_quantity(document_key, requests.get(key, limits.get(key)))
        if key in limits:
            role.setdefault("limit", {})[document_key] = _convert_quantity(document_key, limits[key])
    return role


def _parse_whole_number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def _convert_quantity(document_key: str, value: object) -> object:
    """Convert memory without a unit from bytes, as in manifests, to MiB. Keep other quantities unchanged."""
    if document_key != "memory_mib" or isinstance(value, bool):
        return value
    if isinstance(value, int) and value >= 0:
        return -(-value // 2**20)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return -(-int(value[:18]) // 2**20)
    return value


def _read_count(problems: list[Problem], location: Location, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    problems.append(
        Problem(join_path(location), "is not a valid number of instances", format_value(value), "0 or more")
    )
    return 0


def _read_part(
    problems: list[Problem],
    owner: Mapping[str, Any],
    key: str,
    allowed: tuple[str, ...],
    location: Location = (),
) -> Mapping[str, Any]:
    part = owner.get(key)
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        problems.append(
            Problem(join_path((*location, key)), "must be a mapping", format_value(part), ", ".join(allowed))
        )
        return {}
    _check_keys(problems, (*location, key), part, allowed)
    return part


def _check_keys(
    problems: list[Problem], location: Location, part: Mapping[Any, Any], allowed: tuple[str, ...]
) -> None:
    for key in part:
        if key not in allowed:
            where = join_path((*location, str(key)))
            problems.append(Problem(where, "unknown key", format_value(key), suggest(str(key), allowed)))
