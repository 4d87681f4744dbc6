"""Tests for the credentials that a pool accepts."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.core.errors import Invalid
from pools.kubernetes.api_server.credentials import in_cluster_connection, parse_kubeconfig

PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n").decode()


def kubeconfig(user: dict[str, Any] | None = None, **cluster: Any) -> str:
    return yaml.safe_dump(
        {
            "current-context": "prod",
            "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **cluster}}],
            "users": [{"name": "u", "user": {"token": "t"} if user is None else user}],
        }
    )


def problems(text: str, context: str = "") -> list[tuple[str, str]]:
    with pytest.raises(Invalid) as raised:
        parse_kubeconfig(text, context)
    return [(problem.path, problem.message) for problem in raised.value.problems]


def test_kubeconfig_context_selects_the_server_and_the_token() -> None:
    connection = parse_kubeconfig(kubeconfig(None, **{"certificate-authority-data": PEM}))
    assert (connection.server, connection.token) == ("https://10.0.0.1:6443", "t")
    assert connection.ca.startswith("-----BEGIN")
    assert "'t'" not in repr(connection)


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"command": "rm"}}, {"tokenFile": "/etc/shadow"}, {"client-key": "/etc/shadow"},
        {"auth-provider": {"name": "gcp"}}, {"username": "admin", "password": "x"},
    ],
)  # fmt: skip
def test_kubeconfig_cannot_make_the_server_run_programs_or_read_files(user: dict[str, Any]) -> None:
    (key, *_) = user
    path, message = problems(kubeconfig({"token": "t", **user}))[0]
    assert (path, message) == (f"kubeconfig.users.{key}", "is not supported on the server")


def test_kubeconfig_with_a_certificate_authority_file_is_rejected() -> None:
    path, message = problems(kubeconfig(None, **{"certificate-authority": "/etc/hostname"}))[0]
    assert (path, message) == ("kubeconfig.clusters.certificate-authority", "refers to a file")


@pytest.mark.parametrize(
    ("text", "context", "path"),
    [
        ("not: a kubeconfig", "", "kubeconfig"),
        ("{", "", "kubeconfig"),
        (kubeconfig(), "prd", "provider_settings.context"),
        (kubeconfig({}), "", "kubeconfig.users"),
        (kubeconfig(server="ftp://x"), "", "kubeconfig.clusters.server"),
        (kubeconfig({"client-certificate-data": PEM}), "", "kubeconfig.users"),
        (kubeconfig({"client-certificate-data": "%", "client-key-data": PEM}), "",
         "kubeconfig.users.client-certificate-data"),
    ],
)  # fmt: skip
def test_error_names_the_invalid_part_of_the_kubeconfig(text: str, context: str, path: str) -> None:
    assert problems(text, context)[0][0] == path


def test_service_account_is_used_inside_a_cluster(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(LookupError, match="is not running in a Kubernetes pod"):
        in_cluster_connection(environ, tmp_path)
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("ca")
    connection = in_cluster_connection(environ, tmp_path)
    assert (connection.server, connection.token_file) == ("https://10.96.0.1:443", tmp_path / "token")
