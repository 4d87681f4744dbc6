"""Preview of a new pool: the machines that it would use, and any problems."""

from dataclasses import dataclass
from enum import StrEnum

from pools.providers.base import Shape

NOTHING = Shape(0, 0)


class Severity(StrEnum):
    ERROR = "error"  # the pool would not work
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """Problem or fact that an admin should know before creating the pool.

    `remedy` is a sentence with the recommended action.
    """

    severity: Severity
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class PreviewedNode:
    """Machine that the pool could use as a node.

    `total` is its capacity, and `used` the part in use. `obstacle` says why the pool excludes it, or is
    empty. `details` describes it briefly. `host_key` is the public key that an SSH host presented, if the
    host was listed without one.
    """

    name: str
    total: Shape
    used: Shape = NOTHING
    obstacle: str = ""
    details: str = ""
    host_key: str = ""

    @property
    def free(self) -> Shape:
        """Capacity that is not in use yet."""
        total, used = self.total, self.used
        return Shape(
            max(total.cpu_milli - used.cpu_milli, 0), max(total.memory_mib - used.memory_mib, 0),
            max(total.gpus - used.gpus, 0), total.gpu_model, total.gpu_memory_mib,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Preview:
    """Machines that a pool could use, and findings that an admin should know.

    The preview is empty if machines are created on demand. `source` is the queried system, such as a cluster
    with its version and address.
    """

    source: str = ""
    nodes: tuple[PreviewedNode, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def usable_nodes(self) -> tuple[PreviewedNode, ...]:
        return tuple(node for node in self.nodes if not node.obstacle)


def error(message: str, remedy: str = "") -> Finding:
    return Finding(Severity.ERROR, message, remedy)


def warning(message: str, remedy: str = "") -> Finding:
    return Finding(Severity.WARNING, message, remedy)
