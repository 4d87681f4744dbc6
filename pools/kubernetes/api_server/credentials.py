"""Credentials for a cluster, from a kubeconfig or from Berth's own service account.

A kubeconfig may not refer to files or programs, because Berth's server would read or run them.
"""

import base64
import binascii
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
BYTES_MAX = 256 * 1024
PATH = "kubeconfig"
# Kubeconfig keys that make a client read a file or run a program, with the accepted alternatives.
FORBIDDEN_USER_KEYS = {
    "exec": "a service account token",
    "auth-provider": "a service account token",
    "tokenFile": "token",
    "client-certificate": "client-certificate-data",
    "client-key": "client-key-data",
    "username": "a token or a client certificate",
}


@dataclass(frozen=True)
class Connection:
    """Address and credentials of an API server.

    `client_certificate` contains a certificate and its key in PEM format.
    """

    server: str
    ca: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    client_certificate: tuple[str, str] | None = field(default=None, repr=False)
    skip_verification: bool = False
    proxy: str = ""


def in_cluster_connection(
    environ: Mapping[str, str] = os.environ, root: Path = SERVICE_ACCOUNT
) -> Connection:
    """Return the connection that Berth's own pod uses. Raises LookupError outside a cluster."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (root / "token").exists():
        raise LookupError("Berth is not running in a Kubernetes pod with a service account")
    host = f"[{host}]" if ":" in host else host
    return Connection(f"https://{host}:{port}", (root / "ca.crt").read_text(), token_file=root / "token")


def parse_kubeconfig(text: str, context: str = "") -> Connection:
    """Return the connection for a context of the kubeconfig, by default the current one.

    Raises Invalid with the path of each problem.
    """
    document = _parse_yaml(text)
    name = context or document.get("current-context") or ""
    entry = _find_entry(
        document, "contexts", "context", name, "provider_settings.context" if context else PATH
    )
    cluster = _find_entry(document, "clusters", "cluster", entry.get("cluster"), f"{PATH}.contexts")
    user = _find_entry(document, "users", "user", entry.get("user"), f"{PATH}.contexts")
    if problems := [*_cluster_problems(cluster), *_user_problems(user)]:
        raise Invalid(problems)
    return Connection(
        server=cluster["server"].rstrip("/"),
        ca=_decode(cluster, "certificate-authority-data"),
        token=str(user.get("token") or ""),
        client_certificate=(_decode(user, "client-certificate-data"), _decode(user, "client-key-data"))
        if user.get("client-certificate-data")
        else None,
        skip_verification=bool(cluster.get("insecure-skip-tls-verify")),
        proxy=str(cluster.get("proxy-url") or ""),
    )


def _parse_yaml(text: str) -> dict[str, Any]:
    if len(text) > BYTES_MAX:
        raise Invalid([Problem(PATH, "is too long", "", f"at most {BYTES_MAX:,} bytes")])
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("clusters"), list):
        allowed = "the output of `kubectl config view --flatten --minify`"
        raise Invalid([Problem(PATH, "is not a valid kubeconfig", "", allowed)])
    return document


def _find_entry(
    document: Mapping[str, Any], section: str, kind: str, name: object, path: str
) -> dict[str, Any]:
    entries = {
        str(entry["name"]): entry.get(kind) or {}
        for entry in document.get(section) or ()
        if isinstance(entry, dict) and "name" in entry
    }
    selected = entries.get(str(name))
    if not isinstance(selected, dict):
        names = suggest(str(name), sorted(entries)) if entries else f"a {kind}"
        raise Invalid([Problem(path, f"does not name a {kind} in the kubeconfig", format_value(name), names)])
    return selected


def _cluster_problems(cluster: Mapping[str, Any]) -> Iterable[Problem]:
    server = cluster.get("server")
    if not isinstance(server, str) or not _is_url(server):
        yield Problem(
            f"{PATH}.clusters.server", "is not a valid URL", format_value(server), "https://HOST:PORT"
        )
    if "certificate-authority" in cluster:
        path = f"{PATH}.clusters.certificate-authority"
        yield Problem(path, "refers to a file", "", "certificate-authority-data")
    yield from _base64_problems(cluster, f"{PATH}.clusters", ["certificate-authority-data"])


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _user_problems(user: Mapping[str, Any]) -> Iterable[Problem]:
    for key, allowed in FORBIDDEN_USER_KEYS.items():
        if user.get(key):
            yield Problem(f"{PATH}.users.{key}", "is not supported on the server", "", allowed)
    keys = ["client-certificate-data", "client-key-data"]
    yield from _base64_problems(user, f"{PATH}.users", keys)
    if bool(user.get(keys[0])) != bool(user.get(keys[1])):
        yield Problem(
            f"{PATH}.users", "needs both the client certificate and its key", "", " and ".join(keys)
        )
    if not user.get("token") and not user.get(keys[0]):
        yield Problem(f"{PATH}.users", "has no credentials", "", "a token or a client certificate")


def _base64_problems(values: Mapping[str, Any], path: str, keys: Iterable[str]) -> Iterable[Problem]:
    for key in keys:
        try:
            _decode(values, key)
        except (binascii.Error, UnicodeDecodeError, ValueError, TypeError):
            yield Problem(
                f"{path}.{key}", "is not a base64-encoded PEM file", "", "the output of `base64 -w0 FILE`"
            )


def _decode(values: Mapping[str, Any], key: str) -> str:
    return base64.b64decode(values.get(key) or "", validate=True).decode()
