"""Validate an SSH pool's settings."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec.parsing.findings import convert_errors
from berth.core.spec.roles import Labels
from berth.core.spec.values.texts import NAME, NAME_ALLOWED, Name
from pools.providers import formats
from pools.providers.ssh.endpoint import PORT, normalize_host_key

HOSTS_MAX = 2000
DEFAULT_KEY = "ssh-key"
DEFAULT_HOME = "/var/lib/berth-machine"
HOME_NAME = "berth-machine"
# Environment variables that agents may have, besides BERTH_ variables that are not in ENV_RESERVED.
ENV_ALLOWED = (
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL", "UV_PYTHON_INSTALL_MIRROR",
)  # fmt: skip
ENV_RESERVED = (
    "BERTH_URL", "BERTH_POOL", "BERTH_JOIN_TOKEN", "BERTH_MACHINE_STATE", "BERTH_INSTALLATION", "BERTH_CA",
    "BERTH_PLAIN_HTTP",
)  # fmt: skip
_INDEX = re.compile(r"^hosts\[(\d+)\]")


def _check_name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise PydanticCustomError("name", "is not a valid name", {"allowed": NAME_ALLOWED})
    return text


def _check_host_key(text: str) -> str:
    try:
        return normalize_host_key(text)
    except ValueError as error:
        allowed = "the public key as in /etc/ssh/ssh_host_ed25519_key.pub: ssh-ed25519 AAAA..."
        raise PydanticCustomError(
            "host_key", "{reason}", {"reason": str(error), "allowed": allowed}
        ) from None


def _check_key(text: str) -> str:
    if not (text.startswith("secret:") and NAME.fullmatch(text.removeprefix("secret:"))):
        allowed = "secret:NAME, where NAME is one of the pool's SSH key secrets"
        raise PydanticCustomError("key", "is not a valid secret reference", {"allowed": allowed})
    return text


def _check_home(text: str) -> str:
    parts = text.split("/")
    if not re.fullmatch(r"/[A-Za-z0-9_./-]{1,200}", text) or parts[-1] != HOME_NAME or ".." in parts:
        allowed = (
            f"an absolute path that ends in /{HOME_NAME}, because the directory is deleted with the agent"
        )
        raise PydanticCustomError("home", "is not a valid agent directory", {"allowed": allowed})
    return text


def _check_env(env: dict[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if name in ENV_RESERVED or not (name.startswith("BERTH_") or name in ENV_ALLOWED):
            allowed = "agent settings (BERTH_...) that Berth does not set itself, and " + ", ".join(
                ENV_ALLOWED
            )
            raise PydanticCustomError("env", "must not contain {name}", {"name": name, "allowed": allowed})
        if not re.fullmatch(r"[A-Z_a-z0-9]{1,100}", name) or not value.isprintable() or len(value) > 1000:
            raise PydanticCustomError("env", "contains control characters or is too long", {})
    return env


def _to_list(hosts: Any) -> Any:
    """Convert a mapping from names to hosts into a list, and plain addresses into hosts."""
    if isinstance(hosts, Mapping):
        hosts = [
            {"name": name, **_to_mapping(host)} if isinstance(_to_mapping(host), Mapping) else host
            for name, host in hosts.items()
        ]
    return [_to_mapping(host) for host in hosts] if isinstance(hosts, list | tuple) else hosts


def _to_mapping(host: Any) -> Any:
    return {"address": host} if isinstance(host, str) else host


Address = Annotated[str, formats.ADDRESS]
User = Annotated[str, formats.USER]
Port = Annotated[int, Field(ge=1, le=65535)]
HostKey = Annotated[str, Field(max_length=4096), AfterValidator(_check_host_key)]
KeyReference = Annotated[str, Field(max_length=80), AfterValidator(_check_key)]
Home = Annotated[str, AfterValidator(_check_home)]
Env = Annotated[dict[str, str], Field(max_length=32), AfterValidator(_check_env)]
SshKeys = Annotated[
    dict[Name, str],
    Field(
        max_length=100,
        repr=False,
        description="Private keys for SSH hosts, by the name of the pool's secret that stores the key. They "
        "cannot be read again.",
    ),
]
HostName = Annotated[str, AfterValidator(_check_name)]


class _SettingsModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class BastionSettings(_SettingsModel):
    """Server used as a jump host. Its user and key default to the pool's."""

    address: Address
    host_key: HostKey
    port: Port = PORT
    user: User | None = None
    key: KeyReference | None = None


class HostSettings(_SettingsModel):
    """Host of an SSH pool. Unset fields default to the pool's values.

    A host is not used until it has a `host_key`.
    """

    address: Address
    name: HostName | None = None
    port: Port | None = None
    user: User | None = None
    key: KeyReference | None = None
    host_key: HostKey | None = None
    bastion: BastionSettings | None = None
    home: Home | None = None
    env: Env = Field(default_factory=dict)
    labels: Labels = Field(default_factory=dict)

    @property
    def effective_name(self) -> str:
        """Host's configured name.

        Defaults to the first label of its DNS name, or its IP address with dashes.
        """
        if self.name:
            return self.name
        is_ip = ":" in self.address or self.address.replace(".", "").isdigit()
        text = re.sub(r"[.:]+", "-", self.address) if is_ip else self.address.split(".")[0]
        return text.lower().strip("-")[:63]


class SshSettings(_SettingsModel):
    """Settings of an SSH pool: its hosts, and default values for all hosts."""

    hosts: Annotated[
        tuple[HostSettings, ...],
        BeforeValidator(_to_list),
        Field(
            max_length=HOSTS_MAX,
            strict=False,
            examples=["- address: gpu-1.example.org\n  host_key: ssh-ed25519 A..."],
            description="List in YAML. Each host has an address and its public host key, and optionally a "
            "name, port, user, key, bastion, home, env and labels.",
        ),
    ] = ()
    user: User = Field("root", description="Users other than root need sudo without a password.")
    port: Port = PORT
    key: KeyReference = Field(
        f"secret:{DEFAULT_KEY}", title="Key", description="Secret of the pool with the private key."
    )
    bastion: BastionSettings | None = Field(
        None,
        examples=["address: bastion.example.org\nhost_key: ssh-ed25519 A..."],
        description="Server through which the hosts are reached, in YAML.",
    )
    home: Home = Field(
        DEFAULT_HOME,
        title="Agent directory",
        description=f"Must be named {HOME_NAME}; it is deleted with the agent.",
    )
    env: Env = Field(
        default_factory=dict,
        title="Agent variables",
        examples=['BERTH_RESERVED_CPUS: "2"'],
        description="Settings of the agents, in YAML.",
    )

    def resolved_hosts(self) -> list[dict[str, Any]]:
        """Return all hosts with all values including defaults, as JSON objects."""
        return [self._resolve(host) for host in self.hosts]

    def _resolve(self, host: HostSettings) -> dict[str, Any]:
        bastion = host.bastion if "bastion" in host.model_fields_set else self.bastion
        user, key = host.user or self.user, host.key or self.key
        values = {
            "name": host.effective_name, "address": host.address, "port": host.port or self.port,
            "user": user, "key": key.removeprefix("secret:"), "host_key": host.host_key or "",
            "home": host.home or self.home, "env": {**self.env, **host.env}, "labels": host.labels,
            "bastion": None,
        }  # fmt: skip
        if bastion is not None:
            values["bastion"] = {
                "address": bastion.address, "port": bastion.port, "host_key": bastion.host_key,
                "user": bastion.user or self.user,
                "key": (bastion.key or self.key).removeprefix("secret:"),
            }  # fmt: skip
        return values


def ssh_settings(value: Any) -> SshSettings:
    """Return a pool's validated settings. Raises Invalid with the path and host of each problem."""
    try:
        settings = SshSettings.model_validate(value)
    except ValidationError as error:
        raise Invalid(_replace_indexes_with_host_names(convert_errors(error, SshSettings), value)) from None
    if problems := list(_host_problems(settings)):
        raise Invalid(problems)
    return settings


def pin_host_keys(
    value: Mapping[str, Any], keys: Mapping[str, str], *, replace: bool = False
) -> dict[str, Any]:
    """Return the settings with `keys`, keyed by host name, added to the hosts that have no host key.

    If `replace` is set, pinned keys are replaced too.
    """
    hosts = [dict(host) for host in _to_list(value.get("hosts", ()))]
    for host, parsed in zip(hosts, ssh_settings(value).hosts, strict=True):
        if (replace or not parsed.host_key) and parsed.effective_name in keys:
            host["host_key"] = keys[parsed.effective_name]
    return {**value, "hosts": hosts}


def keep_host_keys(value: Any, former: Mapping[str, Any]) -> Any:
    """Return the new settings, with the pinned keys of hosts that are listed without a `host_key`.

    A host keeps its key only if its name and address are unchanged. `host_key: null` removes the key.
    """
    pinned = {
        (host["name"], host["address"]): host["host_key"] for host in ssh_settings(former).resolved_hosts()
    }
    parsed = ssh_settings(value)
    keys = {
        host.effective_name: pinned.get((host.effective_name, host.address), "")
        for host in parsed.hosts
        if "host_key" not in host.model_fields_set
    }
    former_keys = {name: key for name, key in keys.items() if key}
    return pin_host_keys(value, former_keys) if former_keys else value


def _host_problems(settings: SshSettings) -> Iterable[Problem]:
    resolved = settings.resolved_hosts()
    for index, host in enumerate(resolved):
        if not NAME.fullmatch(host["name"]):
            message = f"cannot be derived from the address {host['address']}"
            yield Problem(f"provider_settings.hosts[{index}].name", message, "", NAME_ALLOWED)
    names = Counter(host["name"] for host in resolved)
    servers = Counter((host["address"], host["port"], _bastion_address(host)) for host in resolved)
    for index, host in enumerate(resolved):
        path = f"provider_settings.hosts[{index}]"
        if names[host["name"]] > 1:
            yield Problem(
                f"{path}.name", "is used by another host", format_value(host["name"]), "a unique name"
            )
        elif servers[host["address"], host["port"], _bastion_address(host)] > 1:
            message = f"is listed twice, for the host {host['name']} and for another host"
            yield Problem(f"{path}.address", message, format_value(host["address"]), "each host once")


def _bastion_address(host: Mapping[str, Any]) -> str:
    return host["bastion"]["address"] if host["bastion"] else ""


def _replace_indexes_with_host_names(problems: Iterable[Problem], value: Any) -> Iterable[Problem]:
    hosts = _to_list(value.get("hosts", ())) if isinstance(value, Mapping) else ()
    for problem in problems:
        match = _INDEX.match(problem.path)
        host = hosts[int(match[1])] if match and isinstance(hosts, list) else None
        label = (host.get("name") or host.get("address")) if isinstance(host, Mapping) else None
        message = f"{problem.message} (host {format_value(label)[1:-1]})" if label else problem.message
        path = f"provider_settings.{problem.path}" if problem.path else "provider_settings"
        yield Problem(path, message, problem.received if problem.path else "", problem.allowed)
