"""SSH host names of pods: [POD.]NAME.PROJECT.berth or [POD.]ID.berth."""

import re
import uuid
from typing import NamedTuple

from berth.cli.exits import invalid_value_error

SUFFIX = ".berth"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_ALLOWED = "[POD.]NAME.PROJECT.berth, for example train.vision.berth or worker-3.train.vision.berth"


class Target(NamedTuple):
    """Target of an SSH connection: a workload (NAME, PROJECT/NAME or ID) and one of its pods, by default the
    first.
    """

    workload: str
    pod: str | None


def format_host(target: Target) -> str:
    """Return the SSH host name of a pod. Raises InvalidInput if a name cannot be part of a host name."""
    labels = [*([target.pod] if target.pod else []), *reversed(target.workload.split("/"))]
    host = ".".join(labels) + SUFFIX
    if parse_host(host) != target:
        raise invalid_value_error(
            "WORKLOAD", "is not a valid workload name", target.workload, "NAME, PROJECT/NAME or ID"
        )
    return host


def parse_host(host: str) -> Target:
    """Parse a host name into its workload and pod. Raises InvalidInput."""
    labels = host.removesuffix(SUFFIX).split(".")
    if not host.endswith(SUFFIX) or len(labels) > 3 or not all(map(_LABEL.fullmatch, labels)):
        raise invalid_value_error("WORKLOAD", "is not a valid pod host name", host, _ALLOWED)
    if len(labels) == 1:
        return Target(labels[0], None)
    if _is_id(labels[-1]):
        return Target(labels[-1], labels[0])
    *pods, name, project = labels
    return Target(f"{project}/{name}", pods[0] if pods else None)


def _is_id(label: str) -> bool:
    try:
        return str(uuid.UUID(label)) == label
    except ValueError:
        return False
