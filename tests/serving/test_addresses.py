"""Tests for engine addresses: their normal form, and which of them are allowed."""

import socket
from typing import Any

import pytest

from projects.delivering.destination import ForbiddenAddress
from projects.serving.addresses import (
    PRIVATE,
    THIS_MACHINE,
    AddressPolicy,
    InvalidAddress,
    is_local,
    normalize,
    resolve_destination,
)


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Make every host name resolve to these addresses."""

    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("http://Engine-1.Example.com:80/", "http://engine-1.example.com"),
        ("HTTPS://engine.example.com:443", "https://engine.example.com"),
        ("http://10.0.0.7:30000//", "http://10.0.0.7:30000"),
        ("http://engine.example.com./v1/", "http://engine.example.com/v1"),
        ("http://[FD00:0:0::1]:30000", "http://[fd00::1]:30000"),
        ("  http://engine:8000 ", "http://engine:8000"),
    ],
)
def test_equivalent_addresses_identify_the_same_engine(written: str, same: str) -> None:
    assert normalize(written) == same
    assert normalize(same) == same


@pytest.mark.parametrize(
    "wrong",
    [
        "", "engine:8000", "ftp://engine", "file:///etc/passwd", "http://", "http://user:word@engine",
        "http://@engine", "http://engine/?a=1", "http://engine/#x", "http://engine?", "http://engine:0", "http://engine:99999",
        "http://engine:x", "http://2130706433", "http://0x7f.1", "http://127.1", "http://010.0.0.1",
        "http://en gine",
        "http://engine\n.evil", "http://-engine", "http://engine/../admin", "http://engine/%2e%2e", "http://ngïne",
        "http://" + "a" * 400, "http://[::1", "http://[fe80::1%25eth0]/",
    ],
)  # fmt: skip
def test_invalid_address_is_rejected_before_any_call(wrong: str) -> None:
    with pytest.raises(InvalidAddress):
        normalize(wrong)


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "169.254.170.2", "fd00:ec2::254", "100.100.100.200", "fe80::1", "0.0.0.0", "::",
     "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "224.0.0.1", "240.0.0.1"],
)  # fmt: skip
@pytest.mark.parametrize("networks", [PRIVATE, (*PRIVATE, *THIS_MACHINE)])
def test_link_local_and_metadata_addresses_are_never_contacted(
    monkeypatch: pytest.MonkeyPatch, address: str, networks: tuple[str, ...]
) -> None:
    resolve_to(monkeypatch, address)
    with pytest.raises(ForbiddenAddress, match="engine resolves to"):
        resolve_destination("http://engine:30000", "/health", AddressPolicy(networks))


def test_allowing_a_network_does_not_allow_its_metadata_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "169.254.169.254")
    with pytest.raises(ForbiddenAddress, match="never allowed"):
        resolve_destination("http://engine", "/", AddressPolicy(("169.254.0.0/16",)))


def test_engine_may_have_a_private_network_address(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "10.1.2.3")
    to = resolve_destination("http://engine:30000/model", "/health", AddressPolicy(PRIVATE))
    assert (to.address, to.host, to.port, to.path) == ("10.1.2.3", "engine", 30000, "/model/health")
    with pytest.raises(ForbiddenAddress, match="not a public address"):
        resolve_destination("http://engine:30000", "/health", AddressPolicy())


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_loopback_addresses_are_contacted_only_if_configured(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    resolve_to(monkeypatch, address)
    with pytest.raises(ForbiddenAddress, match="the Berth server itself"):
        resolve_destination("http://engine:30000", "/", AddressPolicy())
    assert (
        resolve_destination("http://engine:30000", "/", AddressPolicy((*PRIVATE, *THIS_MACHINE))).address
        == address
    )


def test_berths_own_addresses_are_never_contacted(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "127.0.0.1")
    here = AddressPolicy(THIS_MACHINE, own_ports=frozenset({8000}))
    with pytest.raises(ForbiddenAddress, match="the port is used by Berth itself"):
        resolve_destination("http://engine:8000", "/", here)
    assert resolve_destination("http://engine:8001", "/", here).port == 8001


def test_private_address_of_this_machine_counts_as_the_berth_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("projects.serving.addresses.is_local", lambda address: str(address) == "10.0.0.5")
    resolve_to(monkeypatch, "10.0.0.5")
    with pytest.raises(ForbiddenAddress, match="the Berth server itself"):
        resolve_destination("http://engine:30000", "/", AddressPolicy(PRIVATE))
    resolve_to(monkeypatch, "10.0.0.6")
    assert resolve_destination("http://engine:30000", "/", AddressPolicy(PRIVATE)).address == "10.0.0.6"


def test_address_is_local_if_and_only_if_a_socket_can_bind_to_it() -> None:
    import ipaddress

    assert is_local(ipaddress.ip_address("127.0.0.1"))
    assert not is_local(ipaddress.ip_address("192.0.2.1"))


def test_host_name_with_one_forbidden_address_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve_to(monkeypatch, "10.1.2.3", "169.254.169.254")
    with pytest.raises(ForbiddenAddress):
        resolve_destination("http://engine", "/", AddressPolicy(PRIVATE))


def test_engine_is_contacted_only_at_the_validated_address(monkeypatch: pytest.MonkeyPatch) -> None:
    # The host name is resolved only once, so a changed DNS response has no effect.
    answers = iter(["10.1.2.3", "169.254.169.254"])

    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    called: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], **_: Any) -> socket.socket:
        called.append(address)
        raise ConnectionRefusedError("nobody")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "create_connection", connect)
    from projects.serving.base import ErrorKind, ServingError
    from projects.serving.http_client import HttpClient

    with pytest.raises(ServingError) as caught:
        HttpClient(AddressPolicy(PRIVATE)).get("http://engine:30000", "/health")
    assert (caught.value.kind, called) == (ErrorKind.UNREACHABLE, [("10.1.2.3", 30000)])
    with pytest.raises(ServingError) as caught:
        HttpClient(AddressPolicy(PRIVATE)).get("http://engine:30000", "/health")
    assert (caught.value.kind, len(called)) == (ErrorKind.FORBIDDEN, 1)
