"""Here we look at node pools and their nodes."""

from collections.abc import Iterator

from berth.client.answers import Node, NodePool
from berth.client.transport import Transport


class NodePools:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[NodePool]:
        for item in self._transport.pages("node-pools"):
            yield NodePool.model_validate(item)


class Nodes:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, pool: str | None = None, state: str | None = None) -> Iterator[Node]:
        for item in self._transport.pages("nodes", {"pool": pool, "state": state}):
            yield Node.model_validate(item)
