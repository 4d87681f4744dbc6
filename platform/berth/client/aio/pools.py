"""List and change node pools and nodes, and show the queues of pools."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from berth.client.aio.resource import AsyncResource
from berth.client.models.nodes import IssuedJoinToken, JoinToken, Machine, Node, SshHost
from berth.client.models.pools import (
    AvailablePlugin,
    CapacityPoint,
    Fragmentation,
    NodePool,
    PoolCost,
    PoolDiagnosis,
    PoolEnvironment,
    PoolPreview,
    ScaledPool,
    ScalePreview,
    ScalingEvent,
)
from berth.client.models.scheduling import Queue

QUEUE_PAGE = 500


class AsyncNodePools(AsyncResource):
    def list(self) -> AsyncIterator[NodePool]:
        return self._iterate(NodePool, "node-pools")

    async def get(self, name: str) -> NodePool:
        return await self._get(NodePool, f"node-pools/{name}")

    async def create(self, name: str, **values: Any) -> NodePool:
        """Create a pool. `nodes` is, for example, 4, (2, 16) or {"min": 2, "desired": 4, "max": 16}."""
        return await self._post(NodePool, "node-pools", {"name": name, **values})

    async def preview(self, name: str, **values: Any) -> PoolPreview:
        """Preview the nodes and problems of a new pool, without creating the pool."""
        return await self._post(PoolPreview, "node-pools", {"name": name, **values}, {"dry_run": True})

    async def edit(self, name: str, changes: Mapping[str, Any], *, version: int | None = None) -> ScaledPool:
        """Change a pool. The result's `draining` lists the nodes that will drain.

        Raises Conflict if the pool was changed at the same time. If `version` is set, any change since that
        version raises Conflict.
        """
        path = f"node-pools/{name}"
        _, current = await self._read(path)
        tag = current if version is None else f'"{version}"'
        return await self._send(ScaledPool, "PATCH", path, body=changes, headers={"If-Match": tag})

    async def preview_edit(self, name: str, changes: Mapping[str, Any]) -> ScaledPool:
        """Return the pool as `edit` would change it, without storing the change."""
        params = {"dry_run": True}
        return await self._send(ScaledPool, "PATCH", f"node-pools/{name}", params=params, body=changes)

    async def delete(self, name: str) -> None:
        """Delete a pool. Raises Conflict if it was ever used."""
        await self._delete(f"node-pools/{name}")

    async def scale(self, name: str, nodes: int) -> ScaledPool:
        """Set the desired number of nodes. The result's `draining` lists the nodes that will drain."""
        path = f"node-pools/{name}/scale"
        return await self._post(ScaledPool, path, {"nodes": nodes})

    async def scaling(self, name: str, nodes: int | None = None) -> ScalePreview:
        """Preview which nodes would drain, and which drains the disruption budgets would block.

        `nodes` is the desired number of nodes, by default the current number.
        """
        return await self._get(ScalePreview, f"node-pools/{name}/scale", {"nodes": nodes})

    async def pause(self, name: str) -> NodePool:
        """Stop scaling the pool until it is resumed."""
        return await self._post_action(name, "pause")

    async def resume(self, name: str) -> NodePool:
        """Resume the pool after a pause or a drain."""
        return await self._post_action(name, "resume")

    async def retry(self, name: str) -> NodePool:
        """Reset the count of failed boots, and retry provisioning immediately."""
        return await self._post_action(name, "retry")

    async def drain(self, name: str, reason: str = "") -> NodePool:
        """Drain all nodes. Terminated nodes are not replaced until the pool is resumed."""
        return await self._post_action(name, "drain", {"reason": reason})

    def history(
        self, name: str, *, kind: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ScalingEvent]:
        """Iterate over scaling events, newest first."""
        return self._iterate(ScalingEvent, f"node-pools/{name}/history", {"kind": kind}, limit)

    async def capacity(self, name: str, *, seconds: int | None = None) -> AsyncIterator[CapacityPoint]:
        """Iterate over node count changes in the last `seconds` seconds, oldest first."""
        response = await self._transport.get(f"node-pools/{name}/capacity", {"span": seconds})
        for point in response["points"]:
            yield CapacityPoint.model_validate(point)

    async def cost(self, name: str) -> PoolCost:
        return await self._get(PoolCost, f"node-pools/{name}/cost")

    async def fragmentation(self, name: str) -> Fragmentation:
        """Return how free GPUs are distributed across nodes, and the largest gangs that would fit."""
        return await self._get(Fragmentation, f"node-pools/{name}/fragmentation")

    async def diagnosis(self, name: str) -> PoolDiagnosis:
        """Return the pool's problems, most important first, each with a remedy."""
        return await self._get(PoolDiagnosis, f"node-pools/{name}/diagnosis")

    async def environment(self, name: str) -> PoolEnvironment:
        """Return the environment that a pool's plugins install. Raises NotFound if it has none."""
        return await self._get(PoolEnvironment, f"node-pools/{name}/environment")

    async def plugins(self) -> tuple[AvailablePlugin, ...]:
        """Return the available plugins."""
        response = await self._transport.get("plugins")
        return tuple(AvailablePlugin.model_validate(item) for item in response["plugins"])

    def join_tokens(self, name: str) -> AsyncIterator[JoinToken]:
        """Iterate over the pool's join tokens, newest first."""
        return self._iterate(JoinToken, f"node-pools/{name}/join-tokens")

    async def issue_join_token(
        self, name: str, *, machines: int = 1, seconds: int | None = None, comment: str = ""
    ) -> IssuedJoinToken:
        """Issue a join token for a limited number of machines. The token cannot be read again."""
        body: dict[str, Any] = {"comment": comment, "max_machines": machines}
        body |= {} if seconds is None else {"lifetime_seconds": seconds}
        return await self._post(IssuedJoinToken, f"node-pools/{name}/join-tokens", body)

    async def revoke_join_token(self, name: str, token_id: int) -> None:
        await self._delete(f"node-pools/{name}/join-tokens/{token_id}")

    def machines(
        self, name: str, *, departed: bool = False, token: int | None = None
    ) -> AsyncIterator[Machine]:
        """Iterate over joined machines. `departed` adds machines that have left.

        `token` is the ID of the join token that they used.
        """
        query = {"departed": departed or None, "token": token}
        return self._iterate(Machine, f"node-pools/{name}/machines", query)

    async def machine(self, name: str, machine: str) -> Machine:
        """Return the machine that last joined under the given name, even if it has left the pool."""
        return await self._get(Machine, f"node-pools/{name}/machines/{machine}")

    async def remove_machine(self, name: str, machine: str, reason: str = "") -> Machine:
        """Drain a machine's node, then remove the machine."""
        path = f"node-pools/{name}/machines/{machine}/remove"
        return await self._post(Machine, path, {"reason": reason})

    def ssh_hosts(self, name: str) -> AsyncIterator[SshHost]:
        """Iterate over a pool's SSH hosts."""
        return self._iterate(SshHost, f"node-pools/{name}/ssh-hosts")

    async def accept_host_keys(self, name: str, keys: Mapping[str, str]) -> None:
        """Pin keys by host name. Each key must be the host's `presented_key`."""
        await self._transport.post(f"node-pools/{name}/ssh-hosts/accept-keys", {"keys": dict(keys)})

    async def forget_ssh_host(self, name: str, host: str) -> None:
        """Delete the record of a removed host that can no longer be reached.

        The host's agent stays installed.
        """
        await self._delete(f"node-pools/{name}/ssh-hosts/{host}")

    async def _post_action(self, name: str, step: str, body: object = None) -> NodePool:
        return await self._post(NodePool, f"node-pools/{name}/{step}", body)


class AsyncNodes(AsyncResource):
    def list(
        self, *, pool: str | None = None, state: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Node]:
        return self._iterate(Node, "nodes", {"pool": pool, "state": state}, limit)

    async def get(self, name: str) -> Node:
        return await self._get(Node, f"nodes/{name}")

    async def cordon(self, name: str, reason: str = "") -> Node:
        """Cordon a node: running pods continue, but new pods are not placed on it."""
        return await self._post_action(name, "cordon", {"reason": reason})

    async def upgrade(self, name: str) -> Node:
        """Upgrade the node's agent to the server's version while the node's pods keep running."""
        return await self._post(Node, f"nodes/{name}/upgrade")

    async def uncordon(self, name: str) -> Node:
        """Uncordon a node, or cancel its drain."""
        return await self._post_action(name, "uncordon")

    async def drain(self, name: str, reason: str = "") -> Node:
        """Drain a node: running pods have until the drain timeout to finish, then the node is replaced."""
        return await self._post_action(name, "drain", {"reason": reason})

    async def terminate(self, name: str, reason: str = "") -> Node:
        """Terminate a node and its pods immediately."""
        return await self._post_action(name, "terminate", {"reason": reason})

    async def _post_action(self, name: str, step: str, body: object = None) -> Node:
        return await self._post(Node, f"nodes/{name}/{step}", body)


class AsyncQueues(AsyncResource):
    async def read(self, pool: str, *, limit: int | None = None) -> Queue:
        path, items, cursor = f"node-pools/{pool}/queue", list[Any](), None
        while True:
            page_size = QUEUE_PAGE if limit is None else min(QUEUE_PAGE, limit - len(items))
            page: dict[str, Any] = await self._transport.get(path, {"limit": page_size, "cursor": cursor})
            items += page["items"]
            cursor = page.pop("next")
            if cursor is None or (limit is not None and len(items) >= limit):
                return Queue.model_validate({**page, "items": items})
