"""Derive and verify the secrets of machines and pods.

Secrets are derived from the installation's key, so a repeated request gets the same secret. Only join tokens
are random.
"""

import hashlib
import secrets

from django.utils.crypto import constant_time_compare, salted_hmac

SALT = "berth.pools.joining"
TOKEN_PREFIX = "join_"  # noqa: S105 - a prefix


def launch_request_secret(pool: str, client_token: str) -> str:
    """Return the secret that a launch request's machines use to join."""
    return _sign("order", f"{pool}.{client_token}")


def node_secret(key: int) -> str:
    return _sign("node", str(key))


def machine_secret(key: int, version: int) -> str:
    """Return a machine's secret. `key` is the machine's primary key.

    When the machine joins again, its version changes, so that the old secret becomes invalid.
    """
    return _sign("machine", f"{key}-{version}")


def host_join_token(key: int, version: int) -> str:
    """Return the join token that an SSH host uses for one installation of the agent."""
    return _sign("host", f"{key}-{version}")


def verified_host(token: str) -> tuple[int, int] | None:
    """Return the primary key and installation version of the SSH host that the token belongs to.

    Return None if the token is not for an SSH host.
    """
    key, _, version = (verified_key(token, "host") or "").partition("-")
    return (int(key), int(version)) if key and version else None


def verified_machine(secret: str) -> tuple[int, int] | None:
    """Return the machine's primary key and the secret's version, or None if the secret is invalid."""
    key, _, version = (verified_key(secret, "machine") or "").partition("-")
    return (int(key), int(version)) if key and version else None


def pod_secret(key: str) -> str:
    """Return the secret for a session's worker. It is valid while the worker's pod runs."""
    return _sign("pod", key)


def download_secret(key: str) -> str:
    """Return the secret that a node uses to download a pod's code and volumes while the pod is live."""
    return _sign("downloads", key)


def port_secret(key: str) -> str:
    """Return the secret that identifies Berth to a pod that has open ports."""
    return _sign("port", key)


def cluster_secret(pool: str) -> str:
    """Return the secret that Berth shares with all nodes in a pool's cluster."""
    return _compute_signature("cluster", pool)


def gang_secret(workload: str, run: int) -> str:
    """Return the secret that all pods in one run of a workload share."""
    return _compute_signature("gang", f"{workload}.{run}")


def is_machine_secret(secret: str) -> bool:
    """Return whether the secret has a valid signature for a node or machine. Does not query the database."""
    return any(verified_key(secret, kind) is not None for kind in ("node", "machine"))


def verified_key(secret: str, kind: str) -> str | None:
    """Return the key that the secret contains, or None if the secret is invalid or of a different kind."""
    stated_kind, _, signed = secret.partition(".")
    value, _, signature = signed.rpartition(".")
    if (
        stated_kind != kind
        or not value
        or not constant_time_compare(signature, _compute_signature(kind, value))
    ):
        return None
    return value


def generate_join_token() -> tuple[str, str]:
    """Return a random join token and its digest."""
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    return secret, secret_digest(secret)


def secret_digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _sign(kind: str, value: str) -> str:
    return f"{kind}.{value}.{_compute_signature(kind, value)}"


def _compute_signature(kind: str, value: str) -> str:
    return salted_hmac(SALT, f"{kind}.{value}", algorithm="sha256").hexdigest()
