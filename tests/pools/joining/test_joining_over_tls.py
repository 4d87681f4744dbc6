"""Tests for the agent with real TLS servers and valid and invalid certificates."""

import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pools.joining.user_data import user_data
from pools.providers.base import LaunchRequest, ProviderError, ProviderErrorKind, Shape
from tests.support.agents import write_agent
from tests.support.certificates import Authority

WAIT = 30.0


@dataclass
class Server:
    """A server that lets every machine join but rejects later reports, or that redirects all requests."""

    context: ssl.SSLContext | None
    onward: str = ""
    requests: list[tuple[str, Any]] = field(default_factory=list)
    address: str = ""

    @contextmanager
    def running(self, host: str = "127.0.0.1") -> Iterator["Server"]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append((self.path, body))
                if outer.onward:
                    self.send_response(307)
                    self.send_header("Location", outer.onward + self.path)
                    self.end_headers()
                    return
                joins = self.path.endswith("/join")
                self.send_response(200 if joins else 401)
                self.end_headers()
                self.wfile.write(json.dumps({"secret": "s"} if joins else {}).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        server = ThreadingHTTPServer((host, 0), Handler)
        if self.context is not None:
            server.socket = self.context.wrap_socket(server.socket, server_side=True)
        scheme = "http" if self.context is None else "https"
        self.address = f"{scheme}://{host}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@dataclass
class Machine:
    place: Path

    def joins(self, address: str, *, until: str, **more: str) -> str:
        """Run the agent until it prints the text `until` or exits, and return its output."""
        env = {
            "PATH": os.environ["PATH"], "BERTH_URL": address, "BERTH_POOL": "metal", **more,
            "BERTH_JOIN_TOKEN": "join_secret", "BERTH_MACHINE_STATE": str(self.place / "state"),
            "BERTH_METADATA_URL": "http://127.0.0.1:9",
        }  # fmt: skip
        running = subprocess.Popen(
            [sys.executable, "-S", str(write_agent(self.place))], env=env, stderr=subprocess.PIPE, text=True
        )
        timer = threading.Timer(WAIT, running.kill)
        timer.start()
        output = ""
        try:
            assert running.stderr is not None
            for line in running.stderr:
                output += line
                if until in line:
                    break
        finally:
            timer.cancel()
            running.kill()
            running.wait()
            running.stderr.close() if running.stderr else None
        return output


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.fixture
def own_authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


def test_machine_joins_a_server_with_a_certificate_from_the_configured_authority(
    machine: Machine, own_authority: Authority
) -> None:
    with Server(own_authority.server("127.0.0.1")).running() as server:
        output = machine.joins(server.address, until="rejected", BERTH_CA=str(own_authority.file))
    assert [path for path, _ in server.requests] == ["/api/v1/node-pools/metal/join", "/api/v1/machines/call"]
    assert server.requests[0][1]["token"] == "join_secret"
    assert "rejected" in output
    assert (machine.place / "state/secret").read_text() == "s"


def test_token_is_not_sent_to_a_server_with_an_untrusted_certificate(
    machine: Machine, own_authority: Authority
) -> None:
    others = Authority(machine.place, "others")
    with Server(own_authority.server("127.0.0.1")).running() as server:
        for more in ({}, {"BERTH_CA": str(others.file)}):
            assert "CERTIFICATE_VERIFY_FAILED" in machine.joins(server.address, until="not joined", **more)
    assert server.requests == []


def test_certificate_for_another_host_is_rejected(machine: Machine, own_authority: Authority) -> None:
    with Server(own_authority.server("10.0.0.1")).running() as server:
        output = machine.joins(server.address, until="not joined", BERTH_CA=str(own_authority.file))
    assert "IP address mismatch" in output
    assert server.requests == []


def test_agent_does_not_follow_redirects(machine: Machine, own_authority: Authority) -> None:
    context = own_authority.server("127.0.0.1")
    with Server(None).running() as other, Server(context, onward=other.address).running() as server:
        output = machine.joins(server.address, until="not joined", BERTH_CA=str(own_authority.file))
    assert "307" in output
    assert len(server.requests) >= 1
    assert other.requests == []


@pytest.mark.parametrize(
    "address", ["http://berth.example.org", "http://127.example.org", "http://localhost:1@10.0.0.1", "berth"]
)
def test_plain_http_to_other_hosts_is_rejected(machine: Machine, address: str) -> None:
    assert "is not https://" in machine.joins(address, until="never")


def test_plain_http_is_allowed_on_loopback_or_by_setting(machine: Machine) -> None:
    with Server(None).running() as server:
        assert "rejected" in machine.joins(server.address, until="rejected")
    other = Machine(machine.place / "other")
    assert "not joined yet" in other.joins("http://nowhere.invalid", until="not joined", BERTH_PLAIN_HTTP="1")


# --- user data of ordered machines

ORDER = LaunchRequest("metal", 1, "t1", 0, Shape(1000, 1024))


def test_provisioned_machines_receive_the_certificate_authority(
    settings: Any, own_authority: Authority
) -> None:
    settings.BERTH_PUBLIC_URL, settings.BERTH_PUBLIC_CA = "https://berth.example.org", str(own_authority.file)
    text = user_data(ORDER)
    assert own_authority.file.read_text().strip() in text
    assert "\nexport BERTH_CA=/var/lib/berth-machine/ca.pem\n" in text
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    settings.BERTH_PUBLIC_CA = "/nowhere"
    with pytest.raises(ProviderError, match="BERTH_PUBLIC_CA") as raised:
        user_data(ORDER)
    assert raised.value.kind is ProviderErrorKind.SETTINGS


def test_provisioned_machines_join_over_https_unless_plain_http_is_allowed(settings: Any) -> None:
    settings.BERTH_PUBLIC_URL = "http://berth.example.org"
    with pytest.raises(ProviderError, match="not https") as raised:
        user_data(ORDER)
    assert raised.value.kind is ProviderErrorKind.SETTINGS
    settings.BERTH_PLAIN_HTTP = True
    assert "\nexport BERTH_PLAIN_HTTP=1\n" in user_data(ORDER)
