"""Tests for the port proxy: streaming, and the data that it forwards or blocks in both directions."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import AsyncMock

import httpx
import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import OperationalError
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from pools.joining.secrets import port_secret
from projects.models import Membership, PodState
from projects.port_proxy import proxy
from projects.port_proxy.proxy import OPEN_PREFIX, is_allowed
from projects.port_proxy.sessions import MAX_CONCURRENT
from projects.services.workloads.ports import PortAddress
from tests.port_proxy.conftest import PortSetup
from tests.port_proxy.pod import Pod, served
from tests.support.ports import free_port
from tests.support.session_cookies import session_cookie


def open_socket(
    port_setup: PortSetup, path: str = "/socket", cookie: str = "", **options: Any
) -> ClientConnection:
    headers = {"Cookie": cookie or port_setup.open_session()}
    return connect(
        f"ws://{port_setup.host}{path}", sock=socket.create_connection(("127.0.0.1", port_setup.port)),
        proxy=None, additional_headers=headers, compression=None, open_timeout=120,
        **({"origin": port_setup.origin} | options),
    )  # fmt: skip


def fetch_metadata(site: str, mode: str, dest: str) -> dict[str, str]:
    return {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}


def test_opening_a_link_sets_a_host_only_cookie_and_redirects_to_a_url_without_the_secret(
    port_setup: PortSetup,
) -> None:
    answer = port_setup.ask(OPEN_PREFIX + port_setup.link())
    assert answer.headers["location"] == "/"
    assert answer.headers["referrer-policy"] == "no-referrer"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "domain" not in cookie


def test_request_without_a_port_session_does_not_reach_the_pod(port_setup: PortSetup) -> None:
    for cookie in ("", "berth_port=guessed", "sessionid=whatever"):
        assert port_setup.ask("/", cookie=cookie).status_code == 403
    assert port_setup.server.heard == []


def test_berth_and_port_session_cookies_are_not_forwarded_to_the_pod(port_setup: PortSetup) -> None:
    cookie = f"sessionid=secret; {port_setup.open_session()}; theirs=1; csrftoken=token; more=2"
    heard = dict(port_setup.ask("/tell", cookie=cookie).json()["headers"])
    assert heard["cookie"] == "theirs=1; more=2"


def test_pod_receives_the_host_name_and_its_own_request_secret(
    port_setup: PortSetup,
) -> None:
    headers = {"X-Forwarded-For": "8.8.8.8", "X-Forwarded-Proto": "x", "Connection": "x-mine", "X-Mine": "1"}
    heard = dict(
        port_setup.ask("/tell?a=%20b", cookie=port_setup.open_session(), headers=headers).json()["headers"]
    )
    assert heard["host"] == port_setup.host
    assert heard["authorization"] == f"Bearer {port_secret(str(port_setup.pod.pk))}"
    assert heard["x-forwarded-proto"] == "http"
    assert "x-forwarded-for" not in heard
    assert "x-mine" not in heard
    assert port_setup.server.heard[-1]["query"] == "a=%20b"


def test_authorization_header_is_forwarded_to_the_pod(port_setup: PortSetup) -> None:
    own = {"Authorization": "token of-the-page"}
    heard = dict(port_setup.ask("/tell", cookie=port_setup.open_session(), headers=own).json()["headers"])
    assert heard["authorization"] == "token of-the-page"


def test_pod_cannot_set_or_clear_cookies_of_other_hosts(port_setup: PortSetup) -> None:
    answer = port_setup.ask("/cookies", cookie=port_setup.open_session())
    assert answer.headers.get_list("set-cookie") == ["own=1; Path=/; HttpOnly"]
    for name in ("clear-site-data", "strict-transport-security", "x-inner"):
        assert name not in answer.headers
    assert answer.headers["content-security-policy"] == "frame-ancestors 'self'"


@pytest.mark.heavy
@pytest.mark.every_case
@pytest.mark.parametrize(("headers", "method", "status"), [
    ({"Origin": "https://elsewhere.example.org"}, "POST", 403),
    ({"Origin": "null"}, "GET", 403),
    (fetch_metadata("same-site", "no-cors", "script"), "GET", 403),
    (fetch_metadata("cross-site", "navigate", "iframe"), "GET", 403),
    (fetch_metadata("same-site", "navigate", "document"), "POST", 403),
    (fetch_metadata("cross-site", "navigate", "document"), "GET", 200),
    (fetch_metadata("same-origin", "cors", "empty"), "POST", 200),
])  # fmt: skip
def test_cross_site_requests_are_rejected(
    port_setup: PortSetup, headers: dict[str, str], method: str, status: int
) -> None:
    assert (
        port_setup.ask("/tell", method, cookie=port_setup.open_session(), headers=headers).status_code
        == status
    )


def test_same_origin_requests_are_allowed(port_setup: PortSetup) -> None:
    answer = port_setup.ask(
        "/tell", "PUT", cookie=port_setup.open_session(), headers={"Origin": port_setup.origin}, content=b"x"
    )
    assert answer.json()["method"] == "PUT"


def test_statuses_and_redirects_are_returned_unchanged(port_setup: PortSetup) -> None:
    cookie = port_setup.open_session()
    moved = port_setup.ask("/moved", cookie=cookie)
    assert (moved.status_code, moved.headers["location"]) == (302, "/elsewhere?a=1")
    assert port_setup.ask("/unchanged", cookie=cookie).status_code == 304
    head = port_setup.ask("/page.js", "HEAD", cookie=cookie)
    assert int(head.headers["content-length"]) > 0
    assert head.content == b""


def test_long_body_is_streamed_with_or_without_a_content_length(port_setup: PortSetup) -> None:
    cookie = port_setup.open_session()
    received = port_setup.ask("/take", "POST", cookie=cookie, content=b"x" * 5_000_000).json()
    assert received["size"] == 5_000_000
    assert received["parts"] > 1
    assert dict(port_setup.server.heard[-1]["headers"])["content-length"] == "5000000"

    def parts() -> Iterator[bytes]:
        for _ in range(100):
            yield b"y" * 10_000

    assert port_setup.ask("/take", "POST", cookie=cookie, content=parts()).json()["size"] == 1_000_000
    assert dict(port_setup.server.heard[-1]["headers"])["transfer-encoding"] == "chunked"


def test_endless_response_is_streamed_until_the_browser_disconnects(port_setup: PortSetup) -> None:
    headers = {"Host": port_setup.host, "Cookie": port_setup.open_session()}
    with httpx.stream(
        "GET", f"http://127.0.0.1:{port_setup.port}/endless", headers=headers, timeout=120
    ) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "data: tick"
    assert port_setup.server.left.wait(120)


def test_truncated_response_raises_a_transport_error(port_setup: PortSetup) -> None:
    with pytest.raises(httpx.TransportError):
        port_setup.ask("/broken", cookie=port_setup.open_session())


def test_error_page_explains_that_no_process_listens_on_the_port(port_setup: PortSetup) -> None:
    cookie = port_setup.open_session()
    port_setup.pod.ports = {"lab": {"address": "127.0.0.1", "port": free_port()}}
    port_setup.pod.save()
    answer = port_setup.ask("/", cookie=cookie)
    assert answer.status_code == 502
    assert "The port is not responding" in answer.text


@pytest.mark.heavy
def test_error_page_is_shown_if_the_port_session_ends_before_the_pod_responds(
    port_setup: PortSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie = port_setup.open_session()
    monkeypatch.setattr(port_setup.sessions, "is_valid", AsyncMock(return_value=False))
    answer = port_setup.ask("/slow", cookie=cookie)
    assert answer.status_code == 403
    assert "Open this port from Berth" in answer.text


def test_error_page_explains_that_the_database_is_unreachable(
    port_setup: PortSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OperationalError("the connection is lost")

    monkeypatch.setattr("projects.port_proxy.sessions.redeem_link", fail)
    answer = port_setup.ask(f"{OPEN_PREFIX}{port_setup.link()}")
    assert answer.status_code == 503
    assert "database cannot be reached" in answer.text


def test_websocket_messages_and_close_codes_are_forwarded_in_both_directions(port_setup: PortSetup) -> None:
    with open_socket(port_setup, subprotocols=["a", "b"]) as line:
        assert line.subprotocol == "b"
        line.send("hello")
        assert line.recv(120) == "you said hello"
        line.send(b"\x00\x01" * 500_000)
        assert line.recv(120) == b"\x01\x00" * 500_000
        line.send("enough")
        with pytest.raises(ConnectionClosed) as closed:
            line.recv(120)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4321, "as you wish")
    heard = dict(port_setup.server.heard[-1]["headers"])
    assert heard["host"] == port_setup.host
    assert heard["origin"] == port_setup.origin
    assert "berth_port" not in heard.get("cookie", "")


@pytest.mark.parametrize("origin", ["https://elsewhere.example.org", "http://other.localhost"])
def test_cross_site_websocket_is_rejected(port_setup: PortSetup, origin: str) -> None:
    cookie = port_setup.open_session()
    with pytest.raises(InvalidStatus) as rejected:
        open_socket(port_setup, cookie=cookie, origin=origin)
    assert rejected.value.response.status_code == 403
    assert port_setup.server.heard == []


def test_websocket_rejected_by_the_pod_is_rejected_by_the_proxy(port_setup: PortSetup) -> None:
    with pytest.raises(InvalidStatus):
        open_socket(port_setup, "/closed")


def test_redirect_from_the_pod_is_not_followed(port_setup: PortSetup) -> None:
    other = Pod()
    with served(other) as elsewhere:
        with pytest.raises(InvalidStatus):
            open_socket(port_setup, f"/moved/{elsewhere}")
        with pytest.raises(InvalidStatus):
            open_socket(port_setup, f"/moved/{port_setup.port}")
    assert other.heard == []
    assert [request["path"] for request in port_setup.server.heard] == [
        f"/moved/{elsewhere}",
        f"/moved/{port_setup.port}",
    ]


def lose_role(port_setup: PortSetup, session: str) -> None:
    Membership.objects.filter(user=port_setup.cast.dave.user).delete()


def delete_session(port_setup: PortSetup, session: str) -> None:
    Session.objects.filter(session_key=session).delete()


def close_account(port_setup: PortSetup, session: str) -> None:
    User.objects.filter(username="dave").update(is_active=False)


@pytest.mark.every_case
@pytest.mark.parametrize("end", [lose_role, delete_session, close_account], ids=lambda end: end.__name__)
def test_open_port_session_is_closed_when_access_is_revoked(
    port_setup: PortSetup, monkeypatch: pytest.MonkeyPatch, end: Callable[[PortSetup, str], None]
) -> None:
    # Nothing else causes the row of the port session to be read.
    monkeypatch.setattr(proxy, "RECHECK_SECONDS", 3600.0)
    session = session_cookie(port_setup.cast.dave.user).partition("=")[2]
    cookie = port_setup.open_session(replace(port_setup.cast.dave, session_key=session))
    headers = {"Host": port_setup.host, "Cookie": cookie}
    with open_socket(port_setup, cookie=cookie) as line:
        url = f"http://127.0.0.1:{port_setup.port}/endless"
        with httpx.stream("GET", url, headers=headers, timeout=120) as answer:
            lines = answer.iter_lines()
            assert next(lines)
            end(port_setup, session)
            with pytest.raises(httpx.TransportError):
                list(lines)
        with pytest.raises(ConnectionClosed):
            line.recv(120)
    assert port_setup.server.left.wait(120)


def test_port_sessions_end_when_the_pod_stops(port_setup: PortSetup) -> None:
    cookie = port_setup.open_session()
    port_setup.pod.state = PodState.STOPPING
    port_setup.pod.save()
    assert port_setup.ask("/", cookie=cookie).status_code == 502


def test_connections_per_port_are_limited(port_setup: PortSetup) -> None:
    cookie = port_setup.open_session()
    port = (port_setup.workload.pk, "lab")
    assert all(port_setup.sessions.enter(port) for _ in range(MAX_CONCURRENT))
    assert port_setup.ask("/", cookie=cookie).status_code == 503
    port_setup.sessions.leave(port)
    assert port_setup.ask("/", cookie=cookie).status_code == 200


def test_berth_and_cloud_metadata_addresses_are_never_contacted() -> None:
    assert not is_allowed(PortAddress("127.0.0.1", 8000, ""), {8000})
    assert not is_allowed(PortAddress("169.254.169.254", 80, ""), ())
    assert not is_allowed(PortAddress("::ffff:169.254.169.254", 80, ""), ())
    assert is_allowed(PortAddress("127.0.0.1", 8001, ""), {8000})
    assert is_allowed(PortAddress("10.1.2.3", 8000, ""), {8000})


def test_requests_for_other_hosts_are_handled_by_berth(port_setup: PortSetup) -> None:
    for host in (
        "127.0.0.1",
        f"localhost:{port_setup.port}",
        f"x.localhost:{port_setup.port}",
        "berth.example.org",
    ):
        assert port_setup.ask("/", headers={"Host": host}).text == "berth"


def test_non_http_scopes_are_not_forwarded(port_setup: PortSetup) -> None:
    cookie = port_setup.open_session()
    assert port_setup.ask("/.berth/anything", cookie=cookie).status_code == 404
    assert port_setup.ask(OPEN_PREFIX + "wrong").status_code == 403
    assert port_setup.ask(OPEN_PREFIX + port_setup.link(), "HEAD").status_code == 404, (
        "a link preview does not use up the link"
    )
    assert port_setup.ask("/", "TRACE", cookie=cookie).status_code == 404
    assert port_setup.server.heard == []
