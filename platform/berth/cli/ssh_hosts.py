"""Read the hosts and the key of a pool of SSH hosts."""

from pathlib import Path
from typing import Any

from berth.cli.exits import BadInput, invalid_value

KEY_NAME = "ssh-key"
SECRET = "secret:"  # noqa: S105 - a prefix


def read_ssh_values(hosts: str | None, key: str | None) -> dict[str, Any]:
    """Return the fields of a pool for `--hosts` and `--key`."""
    fields: dict[str, Any] = {}
    settings = {} if hosts is None else read_hosts(hosts)
    if key is not None and key.startswith(SECRET):
        if hosts is None:
            raise BadInput("--key secret:NAME is a setting of the hosts: pass --hosts, too")
        settings["key"] = key
    elif key is not None:
        name = str(settings.setdefault("key", f"{SECRET}{KEY_NAME}")).removeprefix(SECRET)
        fields["ssh_keys"] = {name: _read_text("--key", key)}
    return {**fields, "provider_settings": settings} if hosts is not None else fields


def read_hosts(file: str) -> dict[str, Any]:
    """Return the provider settings in the file: settings with `hosts`, or only hosts as a list or by name."""
    import yaml

    try:
        content = yaml.safe_load(_read_text("--hosts", file))
    except yaml.YAMLError as error:
        raise BadInput(f"--hosts: {file} is not YAML: {error}") from None
    if isinstance(content, dict) and "hosts" in content:
        return content
    if isinstance(content, list | dict):
        return {"hosts": content}
    allowed = "a list of hosts, hosts by name, or settings with `hosts`"
    raise invalid_value("--hosts", "does not contain hosts", file, allowed)


def _read_text(option: str, file: str) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{option}: {file} cannot be read: {error}") from None
