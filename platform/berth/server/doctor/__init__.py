"""`berth doctor`: check which of Berth's features this machine supports."""

from berth.server.doctor.check import Check, CheckStatus
from berth.server.doctor.node import node_checks
from berth.server.doctor.server import server_checks

__all__ = ["Check", "CheckStatus", "examine"]


def examine() -> list[Check]:
    """Check whether this machine can serve as a node or run a server with local pools."""
    return [*server_checks(), *node_checks()]
