"""Volumes of a workload: node directories or S3 objects that are mounted into pods."""

import re
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from berth.core.spec.roles import Document
from berth.core.spec.values.texts import Name, Text

VOLUMES_MAX = 16
PATH = re.compile(r"(/[A-Za-z0-9._+@-]+)+", re.ASCII)
PATH_ALLOWED = "an absolute path of letters, digits and . _ + @ -, for example /data"
# Pods have their own system, devices and temporary files in these directories.
OCCUPIED = (
    "/bin", "/berth", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/run", "/sbin",
    "/sys", "/usr",
)  # fmt: skip
PARENTS_ONLY = ("/home", "/root", "/tmp", "/var", "/var/tmp")  # noqa: S108 - paths below them are free


def path_problem(path: str) -> str:
    """Return why a path is not absolute and normalized, or an empty string if it is."""
    if not PATH.fullmatch(path):
        return "is not a normalized absolute path"
    return "leaves its directory" if {"..", "."} & set(path.split("/")) else ""


def _validate_mount_path(path: str) -> str:
    message = path_problem(path)
    is_occupied = any(path == each or path.startswith(f"{each}/") for each in OCCUPIED)
    if not message and (is_occupied or path in PARENTS_ONLY):
        message = "is used by the pod's own files"
    if message:
        raise PydanticCustomError("mount_path", "{message}", {"message": message, "allowed": PATH_ALLOWED})
    return path


class VolumeMount(Document):
    """Volume mounted at `path` in the workload's pods.

    Without `read_only`, pods may write if the pool's volume allows it.
    """

    name: Name
    path: Annotated[Text, AfterValidator(_validate_mount_path)]
    read_only: bool | None = None


def _validate_paths(mounts: tuple[VolumeMount, ...]) -> tuple[VolumeMount, ...]:
    for before, path in pairwise(sorted(mount.path for mount in mounts)):
        if path == before or path.startswith(f"{before}/"):
            allowed, message = "paths that are not inside each other", f"overlap at {before} and {path}"
            raise PydanticCustomError("mount_paths", "{message}", {"message": message, "allowed": allowed})
    return mounts


Volumes = Annotated[
    tuple[VolumeMount, ...], Field(max_length=VOLUMES_MAX, strict=False), AfterValidator(_validate_paths)
]
