"""Tests for resolving image tags to digests at registries on loopback."""

import asyncio
import base64
import hashlib
import json
import socket
from collections.abc import Iterator

import pytest

from berth.core.values.images import parse_image
from scheduler.registries.base import RegistryError, RegistryErrorKind
from scheduler.registries.client import RegistryClient
from scheduler.registries.http_client import RegistryAccess
from scheduler.registries.logins import find_login
from tests.scheduler.registries.tiny_registry import MANIFEST, TinyRegistry, running_tiny_registry

DIGEST = f"sha256:{'a' * 64}"


@pytest.fixture(scope="module")
def tiny() -> Iterator[TinyRegistry]:
    with running_tiny_registry() as registry:
        yield registry


def look_up(image: str, auth: str = "", access: RegistryAccess = RegistryAccess()) -> str:  # noqa: B008
    return asyncio.run(RegistryClient(access).fetch_digest(parse_image(image), auth))


def find_error(image: str, auth: str = "", access: RegistryAccess = RegistryAccess()) -> RegistryError:  # noqa: B008
    with pytest.raises(RegistryError) as failed:
        look_up(image, auth, access)
    return failed.value


def test_token_is_requested_from_the_registrys_authentication_server(tiny: TinyRegistry) -> None:
    tiny.requests.clear()
    assert look_up(tiny.image("private/train:1"), tiny.auth) == DIGEST
    paths = [path.partition("?")[0] for _, path in tiny.requests]
    assert paths == ["/v2/private/train/manifests/1", "/token", "/v2/private/train/manifests/1"]
    assert find_error(tiny.image("private/train:1")).fault == RegistryErrorKind.UNAUTHORIZED


def test_digest_is_computed_if_the_registry_returns_none(tiny: TinyRegistry) -> None:
    assert look_up(tiny.image("without-digest:1")) == f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


@pytest.mark.parametrize("status", [307, 429, 500, 503])
def test_unexpected_http_status_is_a_transient_error(tiny: TinyRegistry, status: int) -> None:
    error = find_error(tiny.image(f"status-{status}:1"))
    assert (error.fault, error.is_permanent) == (RegistryErrorKind.FAILED, False)
    assert str(error) == f"Registry {tiny.address} responded with status {status}."


def test_hanging_registry_times_out(tiny: TinyRegistry) -> None:
    error = find_error(tiny.image("hangs:1"), access=RegistryAccess(seconds=0.05))
    assert (error.fault, error.is_permanent) == (RegistryErrorKind.TIMEOUT, False)
    assert str(error) == f"Registry {tiny.address} did not respond within 0.05 s."


def test_registry_that_refuses_connections_is_reported_as_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = find_error(f"127.0.0.1:{port}/train:1")
    assert (error.fault, error.is_permanent) == (RegistryErrorKind.UNREACHABLE, False)


def test_registry_without_tls_is_contacted_only_if_listed_as_insecure(tiny: TinyRegistry) -> None:
    # This address is not recognized as the machine's own.
    registry = f"127.1:{tiny.address.partition(':')[2]}"
    error = find_error(f"{registry}/train:1")
    assert (error.fault, error.is_permanent) == (RegistryErrorKind.UNREACHABLE, False)
    assert "It does not use TLS. An admin can list it in BERTH_INSECURE_REGISTRIES." in str(error)
    access = RegistryAccess(insecure=frozenset({registry}))
    assert look_up(f"{registry}/train:1", access=access) == DIGEST


@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "0.0.0.0:80", "224.0.0.1"])
def test_registry_at_a_forbidden_address_is_not_contacted(host: str) -> None:
    error = find_error(f"{host}/train:1")
    assert (error.fault, error.is_permanent) == (RegistryErrorKind.FORBIDDEN, True)


def test_registry_request_to_a_berth_port_is_rejected(tiny: TinyRegistry) -> None:
    port = int(tiny.address.partition(":")[2])
    tiny.requests.clear()
    error = find_error(tiny.image("train:1"), access=RegistryAccess(own_ports=frozenset({port})))
    assert "the port is used by Berth itself" in str(error)
    assert tiny.requests == []


def test_proxy_in_the_environment_is_used_except_for_loopback_addresses(
    tiny: TinyRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{tiny.address}")
    monkeypatch.setenv("no_proxy", "")
    access = RegistryAccess(insecure=frozenset({"registry.invalid"}))
    assert look_up("registry.invalid/train:1", access=access) == DIGEST
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert look_up(tiny.image("train:1")) == DIGEST


@pytest.mark.parametrize(
    ("image", "user"),
    [
        ("ghcr.io/org/train", "org"),
        ("ghcr.io/other/train", "all"),
        ("docker.io/library/python", "hub"),
        ("quay.io/org/train", None),
    ],
)
def test_most_specific_registry_login_is_used(image: str, user: str | None) -> None:
    logins = {"ghcr.io": "all", "ghcr.io/org": "org", "https://index.docker.io/v1/": "hub"}
    auths = {
        key: {"auth": base64.b64encode(f"{name}:pass:word".encode()).decode()} for key, name in logins.items()
    }
    login = find_login(json.dumps({"auths": auths}), parse_image(image))
    assert login == (None if user is None else (user, "pass:word"))
