"""Volumes of a pool: directories on its nodes or objects in S3 that pods can mount."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest
from berth.core.spec.sections.volumes import PATH_ALLOWED, path_problem
from berth.core.spec.values.texts import NAME, NAME_ALLOWED
from pools.engine.s3_sources import (
    ACCESSES,
    MAX_GIB,
    READ_ONLY,
    READ_WRITE,
    S3,
    S3_KEYS,
    Access,
    s3_problems,
    s3_source_problem,
)

KEYS = ("name", "source", "access", "nodes", "projects")
VOLUMES_MAX, PROJECTS_MAX, LABELS_MAX = 64, 1000, 16
NFS = "nfs://"
SOURCE_ALLOWED = f"{PATH_ALLOWED}, s3://BUCKET/PREFIX, or on Kubernetes nfs://SERVER/PATH"
# System directories, which contain no user data.
SYSTEM = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
)


@dataclass(frozen=True, slots=True)
class Volume:
    """Volume of a pool: the directory `source` on nodes whose labels match `nodes`, or objects in S3.

    If `projects` is empty, all projects may use the volume. The objects of s3://BUCKET/PREFIX are read from
    `endpoint`, or from AWS if it is empty. They are read with the key in the pool's secret `secret` or, if it
    is empty, with the server's own identity. `max_gib` limits the total size of the objects.
    """

    name: str
    source: str
    access: Access = "read_only"
    nodes: Mapping[str, str] = field(default_factory=dict)
    projects: tuple[str, ...] = ()
    endpoint: str = ""
    region: str = ""
    secret: str = ""
    max_gib: int = MAX_GIB

    @property
    def is_synced(self) -> bool:
        """Whether the volume is in S3 and must be fetched by nodes."""
        return self.source.startswith(S3)

    @property
    def bucket(self) -> str:
        return self.source.removeprefix(S3).partition("/")[0]

    @property
    def prefix(self) -> str:
        """Key prefix of all objects. It is empty or ends with /."""
        prefix = self.source.removeprefix(S3).partition("/")[2].strip("/")
        return f"{prefix}/" if prefix else ""

    @property
    def cache(self) -> str:
        """Name of the cache for the volume's objects on nodes, or empty for volumes that are not in S3."""
        place = f"{self.endpoint}\0{self.bucket}\0{self.prefix}"
        return hashlib.sha256(place.encode()).hexdigest()[:32] if self.is_synced else ""

    @property
    def is_writable(self) -> bool:
        return self.access == READ_WRITE

    def is_usable_by(self, project: str) -> bool:
        return not self.projects or project in self.projects

    def is_on_node(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels has the volume."""
        return all(labels.get(key) == value for key, value in self.nodes.items())


def read_volumes(stored: Iterable[Mapping[str, Any]]) -> tuple[Volume, ...]:
    return tuple(Volume(**{**entry, "projects": tuple(entry["projects"])}) for entry in stored)


def usable_volumes(stored: Iterable[Mapping[str, Any]], project: str) -> dict[str, Volume]:
    """Return the volumes that the project may use, keyed by volume name."""
    return {each.name: each for each in read_volumes(stored) if each.is_usable_by(project)}


def normalize_volumes(value: object, *, is_kubernetes: bool) -> list[dict[str, Any]]:
    """Return the volumes in the stored format. Raises Invalid if a volume is invalid."""
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        allowed = "[] for none, or a list of volumes"
        raise Invalid([Problem("volumes", "is not a list", format_value(value), allowed)])
    problems = [
        problem
        for number, entry in enumerate(value)
        for problem in _volume_problems(f"volumes[{number}]", entry, is_kubernetes=is_kubernetes)
    ] or list(_volume_list_problems(value))
    if problems:
        raise Invalid(problems)
    return [_normalize_volume(entry) for entry in value]


def _normalize_volume(entry: Mapping[str, Any]) -> dict[str, Any]:
    projects = list(dict.fromkeys(entry.get("projects") or ()))
    values = {key: value for key, value in entry.items() if value is not None}
    volume = Volume(**{**values, "projects": ()})
    keys = KEYS + S3_KEYS if volume.is_synced else KEYS
    return {key: value for key, value in asdict(volume).items() if key in keys} | {"projects": projects}


def _volume_list_problems(volumes: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    if len(volumes) > VOLUMES_MAX:
        yield Problem("volumes", "has too many entries", str(len(volumes)), f"at most {VOLUMES_MAX}")
    seen: set[str] = set()
    for number, entry in enumerate(volumes):
        if entry["name"] in seen:
            yield Problem(f"volumes[{number}].name", "is used twice", format_value(entry["name"]))
        seen.add(entry["name"])


def _volume_problems(path: str, entry: object, *, is_kubernetes: bool) -> Iterator[Problem]:
    if not isinstance(entry, Mapping):
        yield Problem(path, "is not a valid volume", format_value(entry), ", ".join(KEYS + S3_KEYS))
        return
    for key in entry:
        if key not in KEYS + S3_KEYS:
            yield Problem(
                f"{path}.{key}", "unknown key", format_value(key), suggest(str(key), KEYS + S3_KEYS)
            )
    name = entry.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        yield Problem(f"{path}.name", "is not a valid name", format_value(name), NAME_ALLOWED)
    if message := _source_problem(entry.get("source"), is_kubernetes=is_kubernetes):
        yield Problem(f"{path}.source", message, format_value(entry.get("source")), SOURCE_ALLOWED)
    access = entry.get("access", READ_ONLY)
    if access not in ACCESSES:
        yield Problem(f"{path}.access", "is unknown", format_value(access), suggest(str(access), ACCESSES))
    yield from s3_problems(path, entry)
    nodes = entry.get("nodes") or {}
    is_labels = isinstance(nodes, Mapping) and all(isinstance(x, str) for pair in nodes.items() for x in pair)
    if not is_labels or len(nodes) > LABELS_MAX:
        allowed = f"at most {LABELS_MAX} labels that its nodes have; {{}} for all nodes"
        yield Problem(f"{path}.nodes", "is not a mapping of labels", format_value(nodes), allowed)
    projects = entry.get("projects") or ()
    if not _is_name_list(projects):
        allowed = "a list of project names; [] for all projects"
        yield Problem(f"{path}.projects", "is not a list of projects", format_value(projects), allowed)


def _source_problem(source: object, *, is_kubernetes: bool) -> str:
    if not isinstance(source, str):
        return "is missing" if source is None else "is not a valid path"
    path = source
    if source.startswith(S3):
        return s3_source_problem(source, is_kubernetes=is_kubernetes)
    if source.startswith(NFS):
        server, slash, rest = source.removeprefix(NFS).partition("/")
        if not is_kubernetes:
            return "is supported only on Kubernetes; mount it on the nodes and specify the directory"
        if not NAME.fullmatch(server.replace(".", "-").lower()):
            return "names no server"
        path = slash + rest
    elif any(path == each or path.startswith(f"{each}/") for each in SYSTEM):
        return "is a system directory"
    return path_problem(path)


def _is_name_list(value: object) -> bool:
    if not isinstance(value, list | tuple) or len(value) > PROJECTS_MAX:
        return False
    return all(isinstance(each, str) and NAME.fullmatch(each) for each in value)


def rejection_reason(
    stored: Iterable[Mapping[str, Any]], pool: str, project: str, names: Collection[str]
) -> str:
    """Return a clause that says why a project cannot use the volumes in the pool, or an empty string if it
    can.
    """
    missing = sorted(set(names) - set(usable_volumes(stored, project)))
    if not missing:
        return ""
    which = f"volume {missing[0]}" if len(missing) == 1 else f"volumes {', '.join(missing)}"
    return f"pool {pool} has no {which} for project {project}"
