"""`berth doctor`: check which of Berth's features this machine supports."""

from berth.server.doctor.check import Check, Status
from berth.server.doctor.node import node_checks
from berth.server.doctor.server import server_checks

__all__ = ["Check", "Status", "examine"]


def examine() -> list[Check]:
    """Test all requirements of a server with local pools, or of a node, on this machine."""
    return [*server_checks(), *node_checks()]
