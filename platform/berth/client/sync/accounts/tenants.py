# Generated from berth/client/aio/accounts/tenants.py by `python -m berth.client.generate`; do not edit.
"""Manage departments and projects with their quotas and secrets. Concurrent quota edits are detected."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from berth.client.models.tenants import (
    Department,
    Project,
    ProjectDetail,
    Quota,
    QuotaChange,
    QuotaGroup,
    QuotaGroupImpact,
    QuotaImpact,
    Secret,
    SecretUse,
    ShareTrace,
    StoredQuota,
    StoredSecret,
)
from berth.client.sync.resource import Resource

Owner = Literal["department", "project"]
SETTABLE = ("gpu", "cpu", "memory_mib", "limit", "weight", "over_quota", "rank")


class Departments(Resource):
    def list(self) -> Iterator[Department]:
        return self._iterate(Department, "departments")

    def get(self, name: str) -> Department:
        return self._get(Department, f"departments/{quote(name, safe='')}")

    def create(self, name: str, **values: Any) -> Department:
        """Create a department. Values: title, rank, reclaim_min_runtime, preempt_min_runtime."""
        return self._post(Department, "departments", {"name": name, **values})

    def edit(self, name: str, changes: Mapping[str, Any]) -> Department:
        path = f"departments/{quote(name, safe='')}"
        return self._send(Department, "PATCH", path, body=changes)

    def delete(self, name: str) -> None:
        """Delete a department. Raises Conflict if it still has projects."""
        self._delete(f"departments/{quote(name, safe='')}")


class Projects(Resource):
    def list(self, department: str | None = None) -> Iterator[Project]:
        return self._iterate(Project, "projects", {"department": department})

    def get(self, name: str) -> ProjectDetail:
        return self._get(ProjectDetail, f"projects/{quote(name, safe='')}")

    def create(self, name: str, department: str, **values: Any) -> Project:
        """Create a project. Values: title, rank, reclaim_min_runtime, preempt_min_runtime, idle_rule."""
        body = {"name": name, "department": department, **values}
        return self._post(Project, "projects", body)

    def edit(self, name: str, changes: Mapping[str, Any]) -> Project:
        path = f"projects/{quote(name, safe='')}"
        return self._send(Project, "PATCH", path, body=changes)

    def delete(self, name: str) -> None:
        """Delete a project. Raises Conflict if it still has workloads."""
        self._delete(f"projects/{quote(name, safe='')}")


class Quotas(Resource):
    def list(
        self, *, pool: str | None = None, department: str | None = None, project: str | None = None
    ) -> Iterator[Quota]:
        params = {"pool": pool, "department": department, "project": project}
        return self._iterate(Quota, "quotas", params)

    def get(self, kind: Owner, name: str, pool: str) -> Quota:
        return self._get(Quota, _path(kind, name, pool))

    def create(self, kind: Owner, name: str, pool: str, values: Mapping[str, Any]) -> StoredQuota:
        """Create a quota. Raises Conflict if the quota already exists."""
        return self._put(StoredQuota, _path(kind, name, pool), values, "")

    def edit(self, kind: Owner, name: str, pool: str, changes: Mapping[str, Any]) -> StoredQuota:
        """Change the given values of a quota. Raises Conflict if the quota was changed concurrently."""
        path = _path(kind, name, pool)
        present, tag = self._read(path)
        values = {key: present[key] for key in SETTABLE if key in present}
        if "limit" in changes:
            changes = {**changes, "limit": {**(values.get("limit") or {}), **changes["limit"]}}
        return self._put(StoredQuota, path, {**values, **changes}, tag)

    def explain_share(self, kind: Owner, name: str, pool: str) -> ShareTrace:
        """Explain how the current fair share is computed."""
        return self._get(ShareTrace, f"{_path(kind, name, pool)}/share")

    def preview(self, draft: Mapping[str, Any]) -> QuotaImpact:
        """Return the effects of a draft (`changes`, optionally `comment`) without applying it."""
        return self._post(QuotaImpact, "quotas/preview", draft)

    def apply(self, draft: Mapping[str, Any], tag: str | None = None) -> QuotaChange | None:
        """Apply all changes of a draft, or none of them. Return None if the draft would change no quota.

        If `tag` is the ETag of a preview, raises Conflict if a quota has changed since the preview.
        """
        match = "*" if tag is None else f'"{tag}"'
        response = self._transport.post("quotas/apply", draft, condition={"If-Match": match})
        change = response["change"]
        return None if change is None else QuotaChange.model_validate(change)

    def changes(self, *, limit: int | None = None) -> Iterator[QuotaChange]:
        """Iterate over quota changes, newest first."""
        return self._iterate(QuotaChange, "quotas/changes", limit=limit)

    def revert(self, change: int) -> QuotaChange:
        """Revert a quota change. Raises Conflict if one of its quotas has been changed since."""
        return self._post(QuotaChange, f"quotas/changes/{change}/revert")


class QuotaGroups(Resource):
    """Groups of pools that have the same GPU model and share quotas."""

    def list(self) -> Iterator[QuotaGroup]:
        return self._iterate(QuotaGroup, "quota-groups")

    def get(self, name: str) -> QuotaGroup:
        return self._get(QuotaGroup, f"quota-groups/{quote(name, safe='')}")

    def create(self, name: str, pools: Sequence[str]) -> QuotaGroup:
        """Create a quota group. Raises Conflict if the group already exists."""
        return self._put(QuotaGroup, f"quota-groups/{quote(name, safe='')}", {"pools": [*pools]}, "")

    def edit(self, name: str, pools: Sequence[str]) -> QuotaGroup:
        """Replace a quota group's pools. Raises Conflict if the group was changed concurrently."""
        path = f"quota-groups/{quote(name, safe='')}"
        _, tag = self._read(path)
        return self._put(QuotaGroup, path, {"pools": [*pools]}, tag)

    def preview(self, name: str, pools: Sequence[str]) -> QuotaGroupImpact:
        """Return the effects of replacing a quota group's pools, without storing the change."""
        path = f"quota-groups/{quote(name, safe='')}/preview"
        return self._post(QuotaGroupImpact, path, {"pools": [*pools]})

    def delete(self, name: str) -> None:
        """Delete a quota group. Raises Conflict if it still has quotas."""
        self._delete_if_unchanged(f"quota-groups/{quote(name, safe='')}")


class Secrets(Resource):
    """Secrets of a project or a pool or, with `personal`, of the user. Values can be set but not read."""

    def list(
        self, *, project: str | None = None, pool: str | None = None, personal: bool = False
    ) -> Iterator[Secret]:
        return self._iterate(Secret, _secrets_path(project, pool, personal))

    def uses(
        self,
        name: str,
        *,
        project: str | None = None,
        pool: str | None = None,
        personal: bool = False,
        outdated: bool | None = None,
        limit: int | None = None,
    ) -> Iterator[SecretUse]:
        """Iterate over the runs that received the secret, newest first.

        `outdated=True` selects the runs that still use an older version.
        """
        path = f"{_secrets_path(project, pool, personal)}/{quote(name, safe='')}/uses"
        return self._iterate(SecretUse, path, {"outdated": outdated}, limit)

    def set(
        self,
        name: str,
        value: str,
        *,
        project: str | None = None,
        pool: str | None = None,
        personal: bool = False,
    ) -> StoredSecret:
        """Create or replace a secret that pods can use."""
        return self._set(name, {"value": value}, _secrets_path(project, pool, personal))

    def set_ssh_key(
        self, name: str, key: str, *, project: str | None = None, pool: str | None = None
    ) -> StoredSecret:
        """Create or replace the private key that Berth uses to log in to a pool's SSH hosts."""
        return self._set(name, {"ssh_key": key}, _secrets_path(project, pool))

    def set_s3_key(
        self, name: str, access_key_id: str, secret_access_key: str,
        *, project: str | None = None, pool: str | None = None,
    ) -> StoredSecret:  # fmt: skip
        """Create or replace the access key that Berth uses for a pool's volumes in S3."""
        body = {"access_key_id": access_key_id, "secret_access_key": secret_access_key}
        return self._set(name, body, _secrets_path(project, pool))

    def set_registry_credentials(
        self, name: str, registry: str, username: str, password: str,
        *, project: str | None = None, pool: str | None = None,
    ) -> StoredSecret:  # fmt: skip
        """Create or replace the credentials for pulling images from a registry."""
        body = {"registry": registry, "username": username, "password": password}
        return self._set(name, body, _secrets_path(project, pool))

    def delete(
        self, name: str, *, project: str | None = None, pool: str | None = None, personal: bool = False
    ) -> None:
        self._delete(f"{_secrets_path(project, pool, personal)}/{quote(name, safe='')}")

    def _set(self, name: str, body: Mapping[str, str], path: str) -> StoredSecret:
        return self._send(StoredSecret, "PUT", f"{path}/{quote(name, safe='')}", body=body)


def _secrets_path(project: str | None, pool: str | None, personal: bool = False) -> str:
    if (project is not None) + (pool is not None) + personal != 1:
        raise ValueError("A secret belongs to a project, to a pool or to you. Specify one of the three.")
    if personal:
        return "secrets"
    owner = f"projects/{quote(project, safe='')}" if project else f"node-pools/{quote(pool or '', safe='')}"
    return f"{owner}/secrets"


def _path(kind: Owner, name: str, pool: str) -> str:
    return f"quotas/{kind}s/{name}/{pool}"
