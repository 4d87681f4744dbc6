"""Tests for the engine list in a file that nginx includes."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from projects.serving.addresses import AddressPolicy, resolve_addresses
from projects.serving.base import ErrorKind, ServingError
from projects.serving.routers import StaticRouter
from tests.serving.static_list import FileStage, listed, resolved

POOL = ThreadPoolExecutor(8)


def test_upstream_file_is_written_atomically(tmp_path: Path) -> None:
    stage = FileStage(tmp_path)
    for number in range(3):
        stage.client.register(f"http://10.0.0.{number}:80", model="m")
    text = stage.path.read_text()
    assert text.startswith("# This file is written by Berth.\nupstream chat {\n    server 10.0.0.0:80;")
    assert text.endswith("}\n")
    assert sorted(path.name for path in stage.path.parent.iterdir()) == [".chat.conf.lock", "chat.conf"]


def test_upstream_file_without_engines_has_a_placeholder_server(tmp_path: Path) -> None:
    stage = FileStage(tmp_path)
    stage.client.register("http://10.0.0.1:80", model="m")
    stage.client.unregister("http://10.0.0.1:80")
    assert "    server 127.0.0.1:9 down;  # no-engines" in stage.path.read_text().splitlines()


def test_another_process_reads_engines_and_their_health_from_the_upstream_file(tmp_path: Path) -> None:
    stage = FileStage(tmp_path)
    stage.client.register("https://engine.example.com", model="m")
    stage.client.mark_unhealthy("https://engine.example.com")
    again = StaticRouter(stage.path, "chat", resolve=resolved)
    assert listed(again) == {"https://engine.example.com": False}


def test_failed_router_reload_is_retried(tmp_path: Path) -> None:
    path, reloaded = tmp_path / "chat.conf", tmp_path / "told"
    failing = StaticRouter(
        path, "chat", resolve=resolved, reload=["sh", "-c", "echo no such pid >&2; exit 3"]
    )
    with pytest.raises(ServingError, match="sh exited with 3: no such pid") as caught:
        failing.register("http://10.0.0.1:80", model="m")
    assert caught.value.kind is ErrorKind.REJECTED
    working = StaticRouter(path, "chat", resolve=resolved, reload=["touch", str(reloaded)])
    working.register("http://10.0.0.1:80", model="m")
    assert reloaded.exists()
    reloaded.unlink()
    working.register("http://10.0.0.1:80", model="m")
    assert not reloaded.exists()


def test_concurrent_changes_to_the_upstream_file_are_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "chat.conf"
    engines = [f"http://10.0.0.{number}:30000" for number in range(20)]
    each = partial(StaticRouter, path, "chat", resolve=resolved)
    list(POOL.map(lambda engine: each().register(engine, model="m"), engines))
    assert listed(each()) == dict.fromkeys(sorted(engines), True)


@pytest.mark.parametrize("name", ["", "a b", "x;}", "1st", "a" * 101])
def test_upstream_name_is_validated(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid upstream name"):
        StaticRouter(tmp_path / "chat.conf", name, resolve=resolved)


def test_engine_address_with_a_path_is_rejected(tmp_path: Path) -> None:
    router = StaticRouter(tmp_path / "chat.conf", "chat", resolve=resolved)
    with pytest.raises(ServingError) as caught:
        router.register("http://10.0.0.1:80/v1", model="m")
    assert caught.value.kind is ErrorKind.UNSUPPORTED


def read_lines(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text().splitlines() if line.startswith("    server")]


class TenantNameServer:
    """A name server that a tenant controls."""

    def __init__(self, *addresses: str, networks: tuple[str, ...] = ()) -> None:
        self.addresses, self.reach = addresses, AddressPolicy(networks)

    def __call__(self, url: str) -> tuple[str, ...]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("projects.serving.addresses.is_local", lambda address: False)
            patched.setattr(
                "socket.getaddrinfo",
                lambda *_, **__: [(socket.AF_INET, 1, 6, "", (one, 0)) for one in self.addresses],
            )
            return resolve_addresses(url, self.reach)


ENGINE = "http://engine.example.com:30000"


def test_upstream_file_contains_the_validated_ip_address_instead_of_the_name(tmp_path: Path) -> None:
    router = StaticRouter(tmp_path / "chat.conf", "chat", resolve=TenantNameServer("8.8.4.4", "8.8.8.8"))
    router.register(ENGINE, model="m")
    assert read_lines(router.path) == [f"server 8.8.4.4:30000;  # {ENGINE}"]
    router.register("http://other.example.com", model="m")
    router.mark_unhealthy("http://other.example.com")
    assert read_lines(router.path)[1] == "server 8.8.4.4:80 down;  # http://other.example.com"


@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.1", "10.0.0.9"])
def test_host_name_with_a_forbidden_address_is_never_written_to_the_upstream_file(
    tmp_path: Path, address: str
) -> None:
    router = StaticRouter(tmp_path / "chat.conf", "chat", resolve=TenantNameServer("8.8.8.8", address))
    for listed_by in (partial(router.register, model="m"), router.mark_healthy):
        with pytest.raises(ServingError) as caught:
            listed_by(ENGINE)
        assert caught.value.kind is ErrorKind.FORBIDDEN
    assert not router.path.exists()


def test_later_dns_change_does_not_change_the_upstream_file(tmp_path: Path) -> None:
    names = TenantNameServer("8.8.8.8")
    router = StaticRouter(tmp_path / "chat.conf", "chat", resolve=names)
    router.register(ENGINE, model="m")
    names.addresses = ("169.254.169.254",)
    router.unregister("http://1.1.1.1")
    assert read_lines(router.path) == [f"server 8.8.8.8:30000;  # {ENGINE}"]
    assert listed(router) == {ENGINE: True}


def test_engine_with_a_new_allowed_address_is_registered_again(tmp_path: Path) -> None:
    names = TenantNameServer("8.8.8.8")
    router = StaticRouter(tmp_path / "chat.conf", "chat", resolve=names)
    router.register(ENGINE, model="m")
    names.addresses = ("8.8.4.4",)
    assert listed(router) == {}
    router.register(ENGINE, model="m")
    assert read_lines(router.path) == [f"server 8.8.4.4:30000;  # {ENGINE}"]


def test_host_names_written_by_an_older_release_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "chat.conf"
    path.write_text(
        "upstream chat {\n"
        "    server engine.example.com:30000;  # http://engine.example.com:30000\n"
        "    server inside.example.com:80;  # http://inside.example.com/path\n}\n"
    )
    router = StaticRouter(path, "chat", resolve=TenantNameServer("8.8.8.8"))
    router.unregister("http://1.1.1.1")
    assert read_lines(path) == [
        f"server 8.8.8.8:30000;  # {ENGINE}", "server 127.0.0.1:9 down;  # http://inside.example.com/path",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "engine",
    ["http://a;}b", "http://10.0.0.1:80;  # x", "http://10.0.0.1\nserver 1.1.1.1;", "ftp://a", "a b"],
)
def test_invalid_engine_address_is_never_written_to_the_upstream_file(tmp_path: Path, engine: str) -> None:
    router = StaticRouter(tmp_path / "chat.conf", "chat", resolve=lambda url: ("8.8.8.8",))
    with pytest.raises(ServingError) as caught:
        router.register(engine, model="m")
    assert caught.value.kind is ErrorKind.FORBIDDEN
    assert not router.path.exists()


def test_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(json.dumps({}))
    router = StaticRouter(tmp_path / "file" / "chat.conf", "chat", resolve=resolved)
    with pytest.raises(ServingError) as caught:
        router.register("http://10.0.0.1:80", model="m")
    assert caught.value.kind is ErrorKind.UNREACHABLE
