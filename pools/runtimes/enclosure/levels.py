"""Isolation levels of nodes, and the rules that decide whether a node may run a pod."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

VARIABLE = "BERTH_ISOLATION"
# Colon-separated lists of additional directories that all pods can read, and that they can also write.
PATHS_VARIABLE, WRITABLE_PATHS_VARIABLE = "BERTH_POD_PATHS", "BERTH_POD_WRITABLE_PATHS"
LIMITS_VARIABLE = "BERTH_LIMITS"  # the value "off" disables the limits in documents
SECCOMP_VARIABLE = "BERTH_SECCOMP"  # the value "off" permits all system calls in enclosed pods
# "off" disables container images. BERTH_IMAGE_CACHE_MIB limits the image storage.
IMAGES_VARIABLE, IMAGE_CACHE_VARIABLE = "BERTH_IMAGES", "BERTH_IMAGE_CACHE_MIB"
SETTINGS_OF_PODS = (
    VARIABLE, PATHS_VARIABLE, WRITABLE_PATHS_VARIABLE, LIMITS_VARIABLE, SECCOMP_VARIABLE, IMAGES_VARIABLE,
    IMAGE_CACHE_VARIABLE,
)  # fmt: skip
FIRST_UID = 1_900_000_000  # Debian, systemd and subordinate IDs leave this range unused
LAST_UID = 1_999_999_999
# Berth's own test pods belong to no project.
PROBE_PROJECT, PROBE_UID, PROBE_WORKSPACE = "", FIRST_UID, "probe"


class IsolationLevel(str, Enum):
    """Isolation levels of a node, from strongest to weakest."""

    __str__ = str.__str__

    USERS = "users"  # each pod has its own namespaces, and each project its own Unix user
    # Each pod has its own namespaces, but all pods run as the user of the node's agent.
    NAMESPACES = "namespaces"
    NONE = "none"


class IsolationPolicy(str, Enum):
    """Isolation policy of a node, set by BERTH_ISOLATION."""

    __str__ = str.__str__

    REQUIRE = "require"  # pods start only inside an enclosure
    AUTO = "auto"  # a node without enclosures serves only one project
    OFF = "off"  # pods are plain processes


@dataclass(frozen=True)
class Isolation:
    """Isolation that a node offers.

    `level` was verified with a test pod. If it is not the strongest level, `obstacle` explains why, with a
    remedy. `limits` names the resources whose limits are enforced, and `limits_obstacle` explains why others
    are not. If `ignores_limits` is set, pods start without enforced limits. `images` is the tested version of
    podman, and `seccomp` is true if system calls are filtered; `images_obstacle` and `seccomp_obstacle`
    explain why they are missing. If `whole_devices` is set, pods cannot share a GPU.
    """

    level: IsolationLevel
    policy: IsolationPolicy = IsolationPolicy.AUTO
    obstacle: str = ""
    limits: tuple[str, ...] = ()
    limits_obstacle: str = ""
    ignores_limits: bool = False
    images: str = ""
    images_obstacle: str = ""
    seccomp: bool = False
    seccomp_obstacle: str = ""
    whole_devices: bool = False

    @property
    def encloses(self) -> bool:
        return self.level is not IsolationLevel.NONE


def read_policy(environ: Mapping[str, str] = os.environ) -> IsolationPolicy:
    """Return this node's isolation policy. Raises ValueError if BERTH_ISOLATION has an unknown value."""
    value = environ.get(VARIABLE) or IsolationPolicy.AUTO
    try:
        return IsolationPolicy(value)
    except ValueError:
        raise ValueError(f"{VARIABLE} is {value!r}. Use require, auto or off.") from None


def pod_uid(project: int) -> int:
    """Return the Unix user ID of a project's pods, the same on all nodes.

    Raises ValueError if the project's number is too large for a user ID.
    """
    uid = FIRST_UID + project
    if not FIRST_UID < uid <= LAST_UID:
        raise ValueError(f"project number {project} is outside the range of user IDs")
    return uid


def find_rejection(isolation: Isolation, project: str, uid: int, served: Collection[str]) -> str:
    """Return why the node must not run a pod of the project, or "" if it may.

    `served` lists the projects that have workspaces on the node.
    """
    if isolation.policy is IsolationPolicy.OFF:
        return ""
    if isolation.level is IsolationLevel.NONE:
        if isolation.policy is IsolationPolicy.REQUIRE:
            return f"{VARIABLE} is require, but this node cannot isolate pods: {isolation.obstacle}"
        others = sorted(set(served) - {project})
        if others:
            return (
                f"this node cannot isolate pods and already serves the project {others[0]}: "
                f"{isolation.obstacle} To run pods without isolation, set {VARIABLE}=off on the node"
            )
    is_probe = project == PROBE_PROJECT and uid == PROBE_UID
    if isolation.level is IsolationLevel.USERS and not is_probe and not FIRST_UID < uid <= LAST_UID:
        return f"the pod spec names user ID {uid}, which is outside the range for pods"
    return ""
