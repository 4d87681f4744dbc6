"""Read an SSH pool's hosts and key."""

import base64
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from berth.cli.exits import InvalidInput, invalid_value_error
from berth.core.wording.reasons import plain_reason

KEY_NAME = "ssh-key"
PREVIEWED_HOSTS = 200
SECRET = "secret:"  # noqa: S105 - a prefix


def read_ssh_values(hosts: str | None, key: str | None, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pool fields that `--hosts` and `--key` set.

    `settings` are the pool's other provider settings.
    """
    own = dict(settings) if hosts is None else read_hosts(hosts)
    login = own.get("login") if hosts is None else None
    # The settings that contain the key.
    user = dict(login) if isinstance(login, Mapping) else own
    fields: dict[str, Any] = {}
    if key is not None and key.startswith(SECRET):
        if hosts is None and user is own:
            raise InvalidInput(
                "--key secret:NAME requires --hosts for SSH hosts, or provider_settings.login for Slurm. For "
                "Kubernetes, use --context or --kubeconfig."
            )
        user["key"] = key
    elif key is not None:
        name = str(user.setdefault("key", f"{SECRET}{KEY_NAME}")).removeprefix(SECRET)
        fields["ssh_keys"] = {name: _read_text("--key", key)}
    if hosts is not None:
        fields["provider_settings"] = own
    elif user is not own:
        fields["provider_settings"] = {**own, "login": user}
    return fields


def read_hosts(file: str) -> dict[str, Any]:
    """Read provider settings from a file. The file can also contain only the hosts."""
    import yaml

    try:
        content = yaml.safe_load(_read_text("--hosts", file))
    except yaml.YAMLError as error:
        raise InvalidInput(f"--hosts: {file} is not valid YAML: {error}") from None
    if isinstance(content, dict) and "hosts" in content:
        return content
    if isinstance(content, list | dict):
        return {"hosts": content}
    allowed = "a list of hosts, hosts by name, or settings with `hosts`"
    raise invalid_value_error("--hosts", "contains no hosts", file, allowed)


def _read_text(option: str, file: str) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{option}: {file} cannot be read: {plain_reason(error)}") from None


def pin_presented_keys(
    values: dict[str, Any], preview: Callable[[dict[str, Any]], Any]
) -> tuple[dict[str, Any], list[str]]:
    """Pin the host keys that the hosts present.

    Return the updated pool and a line of text for each pinned key.
    """
    settings = dict(values.get("provider_settings") or {})
    hosts = settings.get("hosts") or []
    names = list(hosts) if isinstance(hosts, dict) else None
    entries = [_host_entry(host) for host in (hosts.values() if isinstance(hosts, dict) else hosts)]

    def values_with_hosts(start: int, end: int | None) -> dict[str, Any]:
        part: Any = entries[start:end]
        if names is not None:
            part = dict(zip(names[start:end], part, strict=True))
        return {**values, "provider_settings": {**settings, "hosts": part}}

    lines = []
    for start in range(0, len(entries), PREVIEWED_HOSTS):
        end = start + PREVIEWED_HOSTS
        shown = preview(values_with_hosts(start, end)).nodes
        for entry, node in zip(entries[start:end], shown, strict=False):
            if node.host_key:
                entry["host_key"] = node.host_key
                lines.append(f"{node.name}: {fingerprint(node.host_key)}")
    return values_with_hosts(0, None), lines


def fingerprint(host_key: str) -> str:
    """Return a public key's fingerprint in OpenSSH's format, with the name of its algorithm."""
    algorithm, encoded = host_key.split()[:2]
    digest = hashlib.sha256(base64.b64decode(encoded)).digest()
    return f"{algorithm.removeprefix('ssh-')} SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def _host_entry(host: Any) -> dict[str, Any]:
    return dict(host) if isinstance(host, dict) else {"address": host}
