"""SSH keys for hosts, stored as secrets of their pool."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from berth.core.errors import Invalid
from berth.core.problems import Problem
from pools.joining.sealed import UnsealError, unseal
from pools.models import NodePool, PoolSecret, SecretKind
from pools.providers.ssh.endpoint import Endpoint, SshError, SshErrorKind
from pools.services.secrets import SecretContent, set_pool_secret


class PoolKeys:
    """A pool's SSH keys. `unstored` contains keys that are not stored yet."""

    def __init__(self, pool: NodePool | None, unstored: Mapping[str, str] | None = None) -> None:
        rows = PoolSecret.objects.filter(pool=pool, kind=SecretKind.SSH_KEY) if pool and pool.pk else ()
        self._sealed = {row.name: row.sealed for row in rows}
        self._pool, self._unstored = pool, unstored or {}

    def endpoint(self, host: Mapping[str, Any]) -> Endpoint:
        """Return the endpoint for a host's settings. Raises SshError if a key is missing."""
        bastion = host.get("bastion")
        return Endpoint(
            address=host["address"], port=host["port"], user=host["user"], private_key=self.get(host["key"]),
            host_key=host["host_key"], bastion=self.endpoint(bastion) if bastion else None,
        )  # fmt: skip

    def get(self, name: str) -> str:
        if name in self._unstored:
            return self._unstored[name]
        if name not in self._sealed:
            raise SshError(SshErrorKind.KEY, self._missing_message(name))
        try:
            return unseal(self._sealed[name])
        except UnsealError as error:
            raise SshError(SshErrorKind.KEY, f"the SSH key {name} cannot be used: {error}") from None

    def _missing_message(self, name: str) -> str:
        pool = self._pool.name if self._pool else "POOL"
        command = f"`berth secret set {name} --pool {pool} --ssh-key --file KEY`"
        if self._pool is None or self._pool.pk is not None:
            return f"the pool has no SSH key {name}. Set it with {command}"
        return (
            f"the new pool has no SSH key {name} yet. Create the pool with the key's file (`--key FILE`), or "
            f"create the pool with `--yes`, then run {command}"
        )


def split_keys(values: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Separate `ssh_keys`, private keys keyed by secret name, from the other values of a pool."""
    columns = dict(values)
    return columns, columns.pop("ssh_keys", None) or {}


def store_keys(pool: NodePool, keys: Mapping[str, str], *, actor: Any, at: datetime) -> None:
    """Store private keys as secrets of the pool.

    Raises Invalid if the provider uses no SSH keys or a key is unusable.
    """
    if keys and pool.provider not in (NodePool.Provider.SSH, NodePool.Provider.SLURM):
        message = f"is not used by the provider {pool.provider}"
        raise Invalid([Problem("ssh_keys", message, "", "the providers ssh and slurm")])
    for name, key in keys.items():
        try:
            set_pool_secret(
                actor=actor, pool=pool, name=name, content=SecretContent(key, is_ssh_key=True), at=at
            )
        except Invalid as error:
            raise Invalid(
                replace(problem, path=f"ssh_keys.{name}", received="") for problem in error.problems
            ) from None
