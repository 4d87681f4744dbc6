"""Shell scripts that a runtime uses to turn a joined machine into a node."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pools.models import Node


@dataclass(frozen=True, slots=True)
class Instructions:
    """Idempotent shell scripts that the agent runs on a joined machine.

    `check` exits with 0 while the node that `start` started is running. The agent runs it with every report,
    and before each `start`, because `start` would kill the pods of a running node. `upgrade` replaces the
    code of a running node, and `update` applies new settings, both without stopping pods. If `update` fails,
    the node is restarted.
    """

    start: str = ""
    stop: str = ""
    check: str = ""
    upgrade: str = ""
    update: str = ""


@runtime_checkable
class ProvidesInstructions(Protocol):
    """Runtime whose machines must run a script before they can run pods."""

    def instructions(self, node: "Node") -> Instructions: ...


def get_instructions(runtime: object, node: "Node") -> Instructions:
    return runtime.instructions(node) if isinstance(runtime, ProvidesInstructions) else Instructions()
