"""Manage departments, projects and quotas, detecting concurrent quota edits."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal
from urllib.parse import quote

from berth.client.aio.transport import AsyncTransport
from berth.client.http import json_content
from berth.client.models.tenants import (
    Department,
    Project,
    Quota,
    QuotaChange,
    QuotaImpact,
    ShareTrace,
    StoredQuota,
)

Owner = Literal["department", "project"]
SETTABLE = ("gpu", "cpu", "memory_mib", "limit", "weight", "over_quota", "rank")


class AsyncDepartments:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> AsyncIterator[Department]:
        async for item in self._transport.iterate_items("departments"):
            yield Department.model_validate(item)

    async def get(self, name: str) -> Department:
        return Department.model_validate(await self._transport.get(f"departments/{quote(name, safe='')}"))

    async def create(self, name: str, **values: Any) -> Department:
        """Create a department. Values: title, rank, reclaim_min_runtime, preempt_min_runtime."""
        return Department.model_validate(await self._transport.post("departments", {"name": name, **values}))

    async def edit(self, name: str, changes: Mapping[str, Any]) -> Department:
        path = f"departments/{quote(name, safe='')}"
        return Department.model_validate(
            json_content(await self._transport.execute("PATCH", path, body=changes))
        )

    async def delete(self, name: str) -> None:
        """Delete a department. Raises Conflict if it still has projects."""
        await self._transport.execute("DELETE", f"departments/{quote(name, safe='')}")


class AsyncProjects:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, department: str | None = None) -> AsyncIterator[Project]:
        async for item in self._transport.iterate_items("projects", {"department": department}):
            yield Project.model_validate(item)

    async def get(self, name: str) -> Project:
        return Project.model_validate(await self._transport.get(f"projects/{quote(name, safe='')}"))

    async def create(self, name: str, department: str, **values: Any) -> Project:
        """Create a project. Values: title, rank, reclaim_min_runtime, preempt_min_runtime."""
        body = {"name": name, "department": department, **values}
        return Project.model_validate(await self._transport.post("projects", body))

    async def edit(self, name: str, changes: Mapping[str, Any]) -> Project:
        path = f"projects/{quote(name, safe='')}"
        return Project.model_validate(
            json_content(await self._transport.execute("PATCH", path, body=changes))
        )

    async def delete(self, name: str) -> None:
        """Delete a project. Raises Conflict if it still has workloads."""
        await self._transport.execute("DELETE", f"projects/{quote(name, safe='')}")


class AsyncQuotas:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(
        self, *, pool: str | None = None, department: str | None = None, project: str | None = None
    ) -> AsyncIterator[Quota]:
        params = {"pool": pool, "department": department, "project": project}
        async for item in self._transport.iterate_items("quotas", params):
            yield Quota.model_validate(item)

    async def get(self, kind: Owner, name: str, pool: str) -> Quota:
        return Quota.model_validate(await self._transport.get(_path(kind, name, pool)))

    async def create(self, kind: Owner, name: str, pool: str, values: Mapping[str, Any]) -> StoredQuota:
        """Create a quota. Raises Conflict if it already exists."""
        return await self._put(_path(kind, name, pool), values, {"If-None-Match": "*"})

    async def edit(self, kind: Owner, name: str, pool: str, changes: Mapping[str, Any]) -> StoredQuota:
        """Change the given values of a quota. Raises Conflict if it was changed concurrently."""
        path = _path(kind, name, pool)
        current = await self._transport.execute("GET", path)
        present = json_content(current)
        values = {key: present[key] for key in SETTABLE if key in present}
        if "limit" in changes:
            changes = {**changes, "limit": {**(values.get("limit") or {}), **changes["limit"]}}
        return await self._put(path, {**values, **changes}, {"If-Match": current.headers.get("ETag", "*")})

    async def share(self, kind: Owner, name: str, pool: str) -> ShareTrace:
        """Explain how the current fair share is computed."""
        return ShareTrace.model_validate(await self._transport.get(f"{_path(kind, name, pool)}/share"))

    async def preview(self, draft: Mapping[str, Any]) -> QuotaImpact:
        """Return the effects of a draft (`changes`, optionally `comment`) without applying it."""
        return QuotaImpact.model_validate(await self._transport.post("quotas/preview", draft))

    async def apply(self, draft: Mapping[str, Any], tag: str | None = None) -> QuotaChange | None:
        """Apply all changes of a draft or none. Returns None if no quota would change.

        With the `tag` of a preview, raises Conflict if a quota has changed since that preview.
        """
        match = "*" if tag is None else f'"{tag}"'
        response = await self._transport.post("quotas/apply", draft, condition={"If-Match": match})
        change = response["change"]
        return None if change is None else QuotaChange.model_validate(change)

    async def changes(self, *, limit: int | None = None) -> AsyncIterator[QuotaChange]:
        """Iterate over quota changes, newest first."""
        async for item in self._transport.iterate_items("quotas/changes", limit=limit):
            yield QuotaChange.model_validate(item)

    async def revert(self, change: int) -> QuotaChange:
        """Revert a quota change. Raises Conflict if one of its quotas has changed since."""
        return QuotaChange.model_validate(await self._transport.post(f"quotas/changes/{change}/revert"))

    async def _put(self, path: str, values: Mapping[str, Any], condition: Mapping[str, str]) -> StoredQuota:
        return StoredQuota.model_validate(
            json_content(await self._transport.execute("PUT", path, body=values, headers=condition))
        )


def _path(kind: Owner, name: str, pool: str) -> str:
    return f"quotas/{kind}s/{name}/{pool}"
