"""List and change node pools and nodes."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from berth.client.aio.transport import AsyncTransport
from berth.client.http import content_of
from berth.client.models.pools import (
    CapacityPoint,
    Fragmentation,
    JoinToken,
    KnownPlugin,
    Machine,
    Node,
    NodePool,
    PoolCost,
    PoolEnvironment,
    ScaledPool,
    Scaling,
    ScalingEvent,
)


class AsyncNodePools:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> AsyncIterator[NodePool]:
        async for item in self._transport.pages("node-pools"):
            yield NodePool.model_validate(item)

    async def get(self, name: str) -> NodePool:
        return NodePool.model_validate(await self._transport.get(f"node-pools/{name}"))

    async def create(self, name: str, **values: Any) -> NodePool:
        """Values as in REST; `nodes` as 4, as (2, 16) or as {"min": 4, "desired": 2, "max": 16}."""
        return NodePool.model_validate(await self._transport.post("node-pools", {"name": name, **values}))

    async def edit(self, name: str, changes: Mapping[str, Any], *, version: int | None = None) -> ScaledPool:
        """Refused with Conflict if the pool changed since this call began, or since `version`.

        `draining` names the nodes that drain, for example because the maximum is lower.
        """
        path = f"node-pools/{name}"
        found = await self._transport.ask("GET", path)
        tag = found.headers.get("ETag", "*") if version is None else f'"{version}"'
        answer = await self._transport.ask("PATCH", path, body=changes, headers={"If-Match": tag})
        return ScaledPool.model_validate(content_of(answer))

    async def preview_edit(self, name: str, changes: Mapping[str, Any]) -> ScaledPool:
        """The pool as `edit` would leave it; nothing is stored."""
        params = {"dry_run": True}
        answer = await self._transport.ask("PATCH", f"node-pools/{name}", params=params, body=changes)
        return ScaledPool.model_validate(content_of(answer))

    async def delete(self, name: str) -> None:
        """Only a pool that was never used."""
        await self._transport.ask("DELETE", f"node-pools/{name}")

    async def scale(self, name: str, nodes: int) -> ScaledPool:
        """Set the desired number of nodes. `draining` names the nodes that drain."""
        path = f"node-pools/{name}/scale"
        return ScaledPool.model_validate(await self._transport.post(path, {"nodes": nodes}))

    async def scaling(self, name: str, nodes: int | None = None) -> Scaling:
        """Preview the nodes to drain at a desired number (None: the current one), and what budgets block."""
        return Scaling.model_validate(await self._transport.get(f"node-pools/{name}/scale", {"nodes": nodes}))

    async def pause(self, name: str) -> NodePool:
        """It neither grows nor shrinks until it is resumed."""
        return await self._step(name, "pause")

    async def resume(self, name: str) -> NodePool:
        """From a pause or from a drain."""
        return await self._step(name, "resume")

    async def retry(self, name: str) -> NodePool:
        """Order nodes again at once, although boots failed."""
        return await self._step(name, "retry")

    async def drain(self, name: str, reason: str = "") -> NodePool:
        """Every node finishes what it has, then ends; none is replaced until the pool is resumed."""
        return await self._step(name, "drain", {"reason": reason})

    async def history(
        self, name: str, *, kind: str | None = None, limit: int | None = None
    ) -> AsyncIterator[ScalingEvent]:
        """Newest first."""
        async for item in self._transport.pages(f"node-pools/{name}/history", {"kind": kind}, limit):
            yield ScalingEvent.model_validate(item)

    async def capacity(self, name: str, *, seconds: int | None = None) -> AsyncIterator[CapacityPoint]:
        """How many nodes it had when, oldest first; each point holds until the next one."""
        told = await self._transport.get(f"node-pools/{name}/capacity", {"span": seconds})
        for point in told["points"]:
            yield CapacityPoint.model_validate(point)

    async def cost(self, name: str) -> PoolCost:
        return PoolCost.model_validate(await self._transport.get(f"node-pools/{name}/cost"))

    async def fragmentation(self, name: str) -> Fragmentation:
        """In how many pieces its free GPUs lie, and which gangs would find room."""
        return Fragmentation.model_validate(await self._transport.get(f"node-pools/{name}/fragmentation"))

    async def environment(self, name: str) -> PoolEnvironment:
        """What its plugins come to; NotFound where it declares nothing."""
        return PoolEnvironment.model_validate(await self._transport.get(f"node-pools/{name}/environment"))

    async def plugins(self) -> tuple[KnownPlugin, ...]:
        """Those that pools may name."""
        answer = await self._transport.get("plugins")
        return tuple(KnownPlugin.model_validate(item) for item in answer["plugins"])

    async def join_tokens(self, name: str) -> AsyncIterator[JoinToken]:
        """By which machines join, newest first."""
        async for item in self._transport.pages(f"node-pools/{name}/join-tokens"):
            yield JoinToken.model_validate(item)

    async def issue_join_token(
        self, name: str, *, seconds: int | None = None, comment: str = ""
    ) -> JoinToken:
        """`token` of the answer lets one machine join; it is said this once."""
        body = {"comment": comment} | ({} if seconds is None else {"lifetime_seconds": seconds})
        return JoinToken.model_validate(await self._transport.post(f"node-pools/{name}/join-tokens", body))

    async def revoke_join_token(self, name: str, token_id: int) -> None:
        await self._transport.ask("DELETE", f"node-pools/{name}/join-tokens/{token_id}")

    async def machines(self, name: str, *, departed: bool = False) -> AsyncIterator[Machine]:
        """Iterate over joined machines; with `departed` also those that have left."""
        async for item in self._transport.pages(
            f"node-pools/{name}/machines", {"departed": departed or None}
        ):
            yield Machine.model_validate(item)

    async def remove_machine(self, name: str, machine: str, reason: str = "") -> Machine:
        """What runs on its node may finish first, as with a drain."""
        path = f"node-pools/{name}/machines/{machine}/remove"
        return Machine.model_validate(await self._transport.post(path, {"reason": reason}))

    async def _step(self, name: str, step: str, body: object = None) -> NodePool:
        return NodePool.model_validate(await self._transport.post(f"node-pools/{name}/{step}", body))


class AsyncNodes:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(
        self, *, pool: str | None = None, state: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Node]:
        async for item in self._transport.pages("nodes", {"pool": pool, "state": state}, limit):
            yield Node.model_validate(item)

    async def get(self, name: str) -> Node:
        return Node.model_validate(await self._transport.get(f"nodes/{name}"))

    async def cordon(self, name: str, reason: str = "") -> Node:
        """It keeps what it has and takes nothing new."""
        return await self._step(name, "cordon", {"reason": reason})

    async def uncordon(self, name: str) -> Node:
        """Back to work, also from a drain that is not over."""
        return await self._step(name, "uncordon")

    async def drain(self, name: str, reason: str = "") -> Node:
        """What it has may finish within the pool's drain timeout; then it ends and is replaced."""
        return await self._step(name, "drain", {"reason": reason})

    async def terminate(self, name: str, reason: str = "") -> Node:
        """It ends at once, with whatever runs on it."""
        return await self._step(name, "terminate", {"reason": reason})

    async def _step(self, name: str, step: str, body: object = None) -> Node:
        return Node.model_validate(await self._transport.post(f"nodes/{name}/{step}", body))
