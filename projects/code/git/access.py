"""Configure git to connect to a validated address and to authenticate."""

import base64
from collections.abc import Mapping
from pathlib import Path

from berth.core.spec.sections.git import GitAddress, GitSpec, Transport
from pools.services.secrets import private_key_problem
from projects.code.git.errors import GitRejection
from projects.code.git.policy import GitPolicy
from projects.code.git.program import base_environment, ssh_command

CONNECT_SECONDS = 20
SSH_OPTIONS: Mapping[str, str] = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "CheckHostIP": "no",
    "UpdateHostKeys": "no",
    "VerifyHostKeyDNS": "no",
    "IdentitiesOnly": "yes",
    "IdentityAgent": "none",
    "PreferredAuthentications": "publickey",
    "ForwardAgent": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "ProxyCommand": "none",
    "ControlPath": "none",
    "CanonicalizeHostname": "no",
    "RequestTTY": "no",
    "ConnectTimeout": str(CONNECT_SECONDS),
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "4",
}


def build_environment(
    spec: GitSpec, secret: str, address: str, policy: GitPolicy, home: Path, keys: Path
) -> dict[str, str]:
    """Return the environment variables for git. Raises GitRejection for an invalid private key.

    `address` is the validated IP address, and `keys` is a private directory for key files.
    """
    target = spec.address
    if target.transport is Transport.SSH:
        environment = base_environment(home, "ssh", {})
        options = _ssh_options(spec, secret, address, policy, keys)
        return environment | {"GIT_SSH_COMMAND": ssh_command(options), "GIT_SSH_VARIANT": "ssh"}
    shown = f"[{address}]" if ":" in address else address
    is_literal = ":" in target.host  # with an IPv6 address, curl has no name to resolve
    resolved = {"http.curloptResolve": f"{target.host}:{target.effective_port}:{shown}"}
    settings = {} if is_literal else resolved
    if policy.ca_file is not None:
        settings["http.sslCAInfo"] = str(policy.ca_file)
    if secret:
        # Most servers accept any username with a token. Others need the username from the address.
        login = base64.b64encode(f"{target.user}:{secret.strip()}".encode()).decode()
        settings["http.extraHeader"] = f"Authorization: Basic {login}"
    return base_environment(home, "https", settings)


def _ssh_options(spec: GitSpec, secret: str, address: str, policy: GitPolicy, keys: Path) -> dict[str, str]:
    target = spec.address
    if problem := private_key_problem(secret):
        raise GitRejection(f"The secret {spec.secret_label} {problem}.")
    name = host_key_name(target)
    _write(keys / "key", secret.strip() + "\n")
    _write(keys / "known_hosts", f"{name} {spec.host_key}\n" if spec.host_key else "")
    stored = policy.known_hosts
    return {
        **SSH_OPTIONS,
        "HostName": address,
        "HostKeyAlias": name,
        "User": target.user,
        "IdentityFile": str(keys / "key"),
        "UserKnownHostsFile": str(keys / "known_hosts"),
        "GlobalKnownHostsFile": str(stored) if stored is not None and stored.is_file() else "/dev/null",
    }


def host_key_name(target: GitAddress) -> str:
    """Format the host name as in a known_hosts file."""
    return target.host if target.effective_port == 22 else f"[{target.host}]:{target.effective_port}"


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
