"""Tests for client settings: files, environment, tokens and proxies."""

import ssl
import stat
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from berth.client import Client
from berth.client.config import (
    Contexts,
    InvalidSettings,
    Settings,
    load_settings,
    read_contexts,
    settings_path,
    validate_address,
    write_contexts,
)
from tests.client.stub_server import StubServer, page

REMOTE_SETTINGS = Settings("https://berth.example.org", "berth_secret", "vision")


def test_written_settings_are_read_back(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "config.toml"
    write_contexts(file, Contexts("there", {"there": REMOTE_SETTINGS}))
    assert load_settings({}, file) == REMOTE_SETTINGS


def test_settings_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("")
    file.chmod(0o644)
    write_contexts(file, Contexts("there", {"there": REMOTE_SETTINGS}))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.toml"]


def test_environment_variables_override_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    write_contexts(file, Contexts("there", {"there": REMOTE_SETTINGS}))
    environ = {"BERTH_URL": "http://localhost:9/", "BERTH_TOKEN": "other", "BERTH_PROJECT": "speech"}
    assert load_settings(environ, file) == Settings("http://localhost:9", "other", "speech")


def test_stored_token_is_not_sent_to_another_server(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    write_contexts(file, Contexts("there", {"there": REMOTE_SETTINGS}))
    assert load_settings({"BERTH_URL": "http://elsewhere.example.org"}, file).token == ""


def test_token_is_sent_in_the_authorization_header_and_hidden_in_repr() -> None:
    server = StubServer(page([]))
    list(server.client().workloads.list())
    assert server.requests[0].headers["Authorization"] == "Bearer berth_secret"
    assert "berth_secret" not in repr(REMOTE_SETTINGS)


@pytest.mark.parametrize(
    "address", ["", "localhost:8000", "ftp://x", "http://", "http://a:b@c", "http://x:port"]
)
def test_invalid_address_is_rejected(address: str) -> None:
    with pytest.raises(InvalidSettings):
        validate_address(address)


def test_error_names_the_invalid_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("address = ")
    with pytest.raises(InvalidSettings, match=r"config\.toml cannot be read"):
        load_settings({}, file)


def test_settings_file_is_located_in_xdg_config_home(tmp_path: Path) -> None:
    assert settings_path({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "berth" / "config.toml"
    assert settings_path({"BERTH_CONFIG": str(tmp_path / "x")}) == tmp_path / "x"


def test_current_context_applies_unless_another_is_specified(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    here = Settings("http://127.0.0.1:8000", "berth_local")
    write_contexts(file, Contexts("here", {"there": REMOTE_SETTINGS, "here": here}))
    assert load_settings({}, file) == here
    assert load_settings({"BERTH_CONTEXT": "there"}, file) == REMOTE_SETTINGS
    with pytest.raises(
        InvalidSettings, match="context: does not exist; received 'nowhere'; allowed: there, here"
    ):
        load_settings({"BERTH_CONTEXT": "nowhere"}, file)
    other = {"BERTH_CONTEXT": "there", "BERTH_URL": here.address}
    assert load_settings(other, file).token == "", "a token goes to its own server only"


def test_settings_file_without_contexts_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('address = "https://berth.example.org"\ntoken = "berth_secret"\nproject = "vision"\n')
    assert load_settings({}, file) == REMOTE_SETTINGS
    file.write_text('[contexts]\nx = "https://berth.example.org"\n')
    with pytest.raises(InvalidSettings, match="Each context is a table with an address, a token"):
        load_settings({}, file)


def test_context_names_may_contain_any_character(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    names = ["127.0.0.1:8000", "with space", 'quo"te', "ünïcode", "a.b"]
    contexts = Contexts(names[2], dict.fromkeys(names, REMOTE_SETTINGS))
    write_contexts(file, contexts)
    assert read_contexts(file) == contexts


def test_custom_certificate_file_applies_to_localhost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nowhere.pem"))
    with pytest.raises(InvalidSettings, match=r"SSL_CERT_FILE: .*nowhere\.pem cannot be read: No such file"):
        StubServer(page([])).client(Settings("https://localhost:9443", "berth_secret"))


def test_plain_http_connection_loads_no_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nowhere.pem"))
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: pytest.fail("certificates were loaded"))
    with Client(Settings("http://localhost:8000", "berth_secret")):
        pass


class Proxy(BaseHTTPRequestHandler):
    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.paths.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"items": [], "next": null}')

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_proxy_is_used_for_remote_servers_but_not_for_localhost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with HTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.server_port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        for host in ("berth.example.org", f"127.0.0.1:{proxy.server_port}"):
            with Client(Settings(f"http://{host}", "berth_secret")) as client:
                assert list(client.projects.list()) == []
        proxy.shutdown()
    assert [path.partition("?")[0] for path in Proxy.paths] == [
        "http://berth.example.org/api/v1/projects", "/api/v1/projects",
    ]  # fmt: skip
