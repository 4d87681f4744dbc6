"""Tests for the port proxy: streaming, and data that it forwards or blocks in both directions."""

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

from pools.joining.secrets import for_port
from projects.models import Membership, PodState
from projects.services.workloads.ports import PortAddress
from projects.visits import proxy
from projects.visits.passes import MAX_CONCURRENT
from projects.visits.proxy import OPEN_PREFIX, is_allowed
from tests.ports import free_port
from tests.session_cookies import session_cookie
from tests.visits.conftest import VisitSetup
from tests.visits.pod import Pod, served


def open_socket(
    visit_setup: VisitSetup, path: str = "/socket", cookie: str = "", **options: Any
) -> ClientConnection:
    headers = {"Cookie": cookie or visit_setup.visit()}
    return connect(
        f"ws://{visit_setup.host}{path}", sock=socket.create_connection(("127.0.0.1", visit_setup.port)),
        proxy=None, additional_headers=headers, compression=None, open_timeout=120,
        **({"origin": visit_setup.origin} | options),
    )  # fmt: skip


def fetch_metadata(site: str, mode: str, dest: str) -> dict[str, str]:
    """Return the fetch metadata headers that a browser sends."""
    return {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}


def test_opening_a_link_sets_a_host_only_cookie_and_redirects_without_the_link(
    visit_setup: VisitSetup,
) -> None:
    answer = visit_setup.ask(OPEN_PREFIX + visit_setup.link())
    assert answer.headers["location"] == "/"
    assert answer.headers["referrer-policy"] == "no-referrer"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "domain" not in cookie


def test_request_without_a_port_session_does_not_reach_the_pod(visit_setup: VisitSetup) -> None:
    for cookie in ("", "berth_port=guessed", "sessionid=whatever"):
        assert visit_setup.ask("/", cookie=cookie).status_code == 403
    assert visit_setup.server.heard == []


def test_berth_and_port_session_cookies_are_not_forwarded_to_the_pod(visit_setup: VisitSetup) -> None:
    cookie = f"sessionid=secret; {visit_setup.visit()}; theirs=1; csrftoken=token; more=2"
    heard = dict(visit_setup.ask("/tell", cookie=cookie).json()["headers"])
    assert heard["cookie"] == "theirs=1; more=2"


def test_pod_receives_the_host_name_and_its_own_request_secret(
    visit_setup: VisitSetup,
) -> None:
    headers = {"X-Forwarded-For": "8.8.8.8", "X-Forwarded-Proto": "x", "Connection": "x-mine", "X-Mine": "1"}
    heard = dict(
        visit_setup.ask("/tell?a=%20b", cookie=visit_setup.visit(), headers=headers).json()["headers"]
    )
    assert heard["host"] == visit_setup.host
    assert heard["authorization"] == f"Bearer {for_port(str(visit_setup.pod.pk))}"
    assert heard["x-forwarded-proto"] == "http"
    assert "x-forwarded-for" not in heard
    assert "x-mine" not in heard
    assert visit_setup.server.heard[-1]["query"] == "a=%20b"


def test_authorization_header_is_forwarded_to_the_pod(visit_setup: VisitSetup) -> None:
    own = {"Authorization": "token of-the-page"}
    heard = dict(visit_setup.ask("/tell", cookie=visit_setup.visit(), headers=own).json()["headers"])
    assert heard["authorization"] == "token of-the-page"


def test_pod_cannot_set_or_clear_cookies_of_other_hosts(visit_setup: VisitSetup) -> None:
    answer = visit_setup.ask("/cookies", cookie=visit_setup.visit())
    assert answer.headers.get_list("set-cookie") == ["own=1; Path=/; HttpOnly"]
    for name in ("clear-site-data", "strict-transport-security", "x-inner"):
        assert name not in answer.headers
    assert answer.headers["content-security-policy"] == "frame-ancestors 'self'"


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
    visit_setup: VisitSetup, headers: dict[str, str], method: str, status: int
) -> None:
    assert visit_setup.ask("/tell", method, cookie=visit_setup.visit(), headers=headers).status_code == status


def test_same_origin_requests_are_allowed(visit_setup: VisitSetup) -> None:
    answer = visit_setup.ask(
        "/tell", "PUT", cookie=visit_setup.visit(), headers={"Origin": visit_setup.origin}, content=b"x"
    )
    assert answer.json()["method"] == "PUT"


def test_statuses_and_redirects_are_returned_unchanged(visit_setup: VisitSetup) -> None:
    cookie = visit_setup.visit()
    moved = visit_setup.ask("/moved", cookie=cookie)
    assert (moved.status_code, moved.headers["location"]) == (302, "/elsewhere?a=1")
    assert visit_setup.ask("/unchanged", cookie=cookie).status_code == 304
    head = visit_setup.ask("/page.js", "HEAD", cookie=cookie)
    assert int(head.headers["content-length"]) > 0
    assert head.content == b""


def test_long_body_is_streamed_with_or_without_a_length(visit_setup: VisitSetup) -> None:
    cookie = visit_setup.visit()
    received = visit_setup.ask("/take", "POST", cookie=cookie, content=b"x" * 5_000_000).json()
    assert received["size"] == 5_000_000
    assert received["parts"] > 1
    assert dict(visit_setup.server.heard[-1]["headers"])["content-length"] == "5000000"

    def parts() -> Iterator[bytes]:
        for _ in range(100):
            yield b"y" * 10_000

    assert visit_setup.ask("/take", "POST", cookie=cookie, content=parts()).json()["size"] == 1_000_000
    assert dict(visit_setup.server.heard[-1]["headers"])["transfer-encoding"] == "chunked"


def test_endless_response_is_streamed_until_the_browser_disconnects(visit_setup: VisitSetup) -> None:
    headers = {"Host": visit_setup.host, "Cookie": visit_setup.visit()}
    with httpx.stream(
        "GET", f"http://127.0.0.1:{visit_setup.port}/endless", headers=headers, timeout=120
    ) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "data: tick"
    assert visit_setup.server.left.wait(120)


def test_truncated_response_raises_a_transport_error(visit_setup: VisitSetup) -> None:
    with pytest.raises(httpx.TransportError):
        visit_setup.ask("/broken", cookie=visit_setup.visit())


def test_error_page_explains_that_no_process_listens_on_the_port(visit_setup: VisitSetup) -> None:
    cookie = visit_setup.visit()
    visit_setup.pod.ports = {"lab": {"address": "127.0.0.1", "port": free_port()}}
    visit_setup.pod.save()
    answer = visit_setup.ask("/", cookie=cookie)
    assert answer.status_code == 502
    assert "The port is not responding" in answer.text


def test_port_session_that_ends_before_the_pod_responds_gets_an_error_page(
    visit_setup: VisitSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    cookie = visit_setup.visit()
    monkeypatch.setattr(visit_setup.passes, "is_valid", AsyncMock(return_value=False))
    answer = visit_setup.ask("/slow", cookie=cookie)
    assert answer.status_code == 403
    assert "Open this port from Berth" in answer.text


def test_error_page_explains_that_the_database_is_unreachable(
    visit_setup: VisitSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OperationalError("the connection is lost")

    monkeypatch.setattr("projects.visits.passes.redeem_link", fail)
    answer = visit_setup.ask(f"{OPEN_PREFIX}{visit_setup.link()}")
    assert answer.status_code == 503
    assert "database cannot be reached" in answer.text


def test_websocket_messages_and_close_codes_are_forwarded_in_both_directions(visit_setup: VisitSetup) -> None:
    with open_socket(visit_setup, subprotocols=["a", "b"]) as line:
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
    heard = dict(visit_setup.server.heard[-1]["headers"])
    assert heard["host"] == visit_setup.host
    assert heard["origin"] == visit_setup.origin
    assert "berth_port" not in heard.get("cookie", "")


@pytest.mark.parametrize("origin", ["https://elsewhere.example.org", "http://other.localhost"])
def test_cross_site_websocket_is_rejected(visit_setup: VisitSetup, origin: str) -> None:
    cookie = visit_setup.visit()
    with pytest.raises(InvalidStatus) as rejected:
        open_socket(visit_setup, cookie=cookie, origin=origin)
    assert rejected.value.response.status_code == 403
    assert visit_setup.server.heard == []


def test_websocket_rejected_by_the_pod_is_rejected_by_the_proxy(visit_setup: VisitSetup) -> None:
    with pytest.raises(InvalidStatus):
        open_socket(visit_setup, "/closed")


def test_redirect_from_the_pod_is_not_followed(visit_setup: VisitSetup) -> None:
    other = Pod()
    with served(other) as elsewhere:
        with pytest.raises(InvalidStatus):
            open_socket(visit_setup, f"/moved/{elsewhere}")
        with pytest.raises(InvalidStatus):
            open_socket(visit_setup, f"/moved/{visit_setup.port}")
    assert other.heard == []
    assert [request["path"] for request in visit_setup.server.heard] == [
        f"/moved/{elsewhere}",
        f"/moved/{visit_setup.port}",
    ]


def lose_role(visit_setup: VisitSetup, session: str) -> None:
    Membership.objects.filter(user=visit_setup.cast.dave.user).delete()


def delete_session(visit_setup: VisitSetup, session: str) -> None:
    Session.objects.filter(session_key=session).delete()


def close_account(visit_setup: VisitSetup, session: str) -> None:
    User.objects.filter(username="dave").update(is_active=False)


@pytest.mark.every_case
@pytest.mark.parametrize("end", [lose_role, delete_session, close_account], ids=lambda end: end.__name__)
def test_open_port_session_is_closed_when_access_is_revoked(
    visit_setup: VisitSetup, monkeypatch: pytest.MonkeyPatch, end: Callable[[VisitSetup, str], None]
) -> None:
    """The visit ends soon, although nothing else causes its row to be read."""
    monkeypatch.setattr(proxy, "RECHECK_SECONDS", 3600.0)
    session = session_cookie(visit_setup.cast.dave.user).partition("=")[2]
    cookie = visit_setup.visit(replace(visit_setup.cast.dave, session_key=session))
    headers = {"Host": visit_setup.host, "Cookie": cookie}
    with open_socket(visit_setup, cookie=cookie) as line:
        url = f"http://127.0.0.1:{visit_setup.port}/endless"
        with httpx.stream("GET", url, headers=headers, timeout=120) as answer:
            lines = answer.iter_lines()
            assert next(lines)
            end(visit_setup, session)
            with pytest.raises(httpx.TransportError):
                list(lines)
        with pytest.raises(ConnectionClosed):
            line.recv(120)
    assert visit_setup.server.left.wait(120)


def test_port_sessions_end_when_the_pod_stops(visit_setup: VisitSetup) -> None:
    cookie = visit_setup.visit()
    visit_setup.pod.state = PodState.STOPPING
    visit_setup.pod.save()
    assert visit_setup.ask("/", cookie=cookie).status_code == 502


def test_connections_per_port_are_limited(visit_setup: VisitSetup) -> None:
    cookie = visit_setup.visit()
    port = (visit_setup.workload.pk, "lab")
    assert all(visit_setup.passes.enter(port) for _ in range(MAX_CONCURRENT))
    assert visit_setup.ask("/", cookie=cookie).status_code == 503
    visit_setup.passes.leave(port)
    assert visit_setup.ask("/", cookie=cookie).status_code == 200


def test_berth_and_cloud_metadata_addresses_are_never_called() -> None:
    assert not is_allowed(PortAddress("127.0.0.1", 8000, ""), {8000})
    assert not is_allowed(PortAddress("169.254.169.254", 80, ""), ())
    assert not is_allowed(PortAddress("::ffff:169.254.169.254", 80, ""), ())
    assert is_allowed(PortAddress("127.0.0.1", 8001, ""), {8000})
    assert is_allowed(PortAddress("10.1.2.3", 8000, ""), {8000})


def test_requests_for_other_hosts_are_handled_by_berth(visit_setup: VisitSetup) -> None:
    for host in (
        "127.0.0.1",
        f"localhost:{visit_setup.port}",
        f"x.localhost:{visit_setup.port}",
        "berth.example.org",
    ):
        assert visit_setup.ask("/", headers={"Host": host}).text == "berth"


def test_non_http_scopes_are_not_forwarded(visit_setup: VisitSetup) -> None:
    cookie = visit_setup.visit()
    assert visit_setup.ask("/.berth/anything", cookie=cookie).status_code == 404
    assert visit_setup.ask(OPEN_PREFIX + "wrong").status_code == 403
    assert visit_setup.ask(OPEN_PREFIX + visit_setup.link(), "HEAD").status_code == 404, (
        "a link preview does not use up the link"
    )
    assert visit_setup.ask("/", "TRACE", cookie=cookie).status_code == 404
    assert visit_setup.server.heard == []
