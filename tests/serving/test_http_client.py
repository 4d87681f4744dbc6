"""Tests that each call to an engine ends in time, with a complete and bounded response or an error."""

import socket
import threading

import pytest

from projects.serving.base import ErrorKind, ServingError
from projects.serving.http_client import HttpClient
from tests.serving.conftest import HERE, Starts
from tests.serving.engine.server import Fault

QUICK = HttpClient(HERE, seconds=0.4)


def catch_error(http_client: HttpClient, address: str, path: str = "/health") -> ServingError:
    with pytest.raises(ServingError) as caught:
        http_client.get(address, path)
    return caught.value


def test_complete_engine_response_is_returned_whatever_its_status(
    start: Starts, http_client: HttpClient
) -> None:
    server = start()
    assert http_client.get(server.address, "/health").status == 200
    assert http_client.get(server.address, "/nothing").status == 404


def test_closed_port_is_reported_as_unreachable(http_client: HttpClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert catch_error(http_client, f"http://127.0.0.1:{port}").kind is ErrorKind.UNREACHABLE


def test_unresolvable_host_name_is_reported_as_unreachable(http_client: HttpClient) -> None:
    assert catch_error(http_client, "http://engine.invalid:30000").kind is ErrorKind.UNREACHABLE


@pytest.mark.parametrize("fault", [Fault(slow=3600.0), Fault(drip=True)])
def test_slow_or_trickling_response_times_out(start: Starts, fault: Fault) -> None:
    server = start()
    server.engine.faults["/server_info"] = fault
    assert catch_error(QUICK, server.address, "/server_info").kind is ErrorKind.TIMEOUT


@pytest.mark.parametrize("fault", [Fault(half=True), Fault(hang_up=True)])
def test_incomplete_response_raises_an_error(start: Starts, http_client: HttpClient, fault: Fault) -> None:
    server = start()
    server.engine.faults["/server_info"] = fault
    assert catch_error(http_client, server.address, "/server_info").kind is ErrorKind.UNREADABLE


def test_response_over_the_size_limit_is_rejected(start: Starts) -> None:
    server = start()
    server.engine.faults["/metrics"] = Fault(body="x" * 100_000)
    error = catch_error(HttpClient(HERE, max_bytes=50_000), server.address, "/metrics")
    assert (error.kind, error.message) == (ErrorKind.UNREADABLE, "the response exceeds 50000 bytes")


def test_non_http_response_is_reported_as_unreadable(http_client: HttpClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            line, _ = listener.accept()
            line.sendall(b"220 mail.example.com ESMTP\r\n")
            line.close()

        thread = threading.Thread(target=greet)
        thread.start()
        error = catch_error(http_client, f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert error.kind is ErrorKind.UNREADABLE


def test_redirect_from_an_engine_is_not_followed(start: Starts, http_client: HttpClient) -> None:
    server, other = start(), start()
    server.engine.faults["/health"] = Fault(to=f"{other.address}/secrets")
    assert http_client.get(server.address, "/health").status == 302
    assert other.engine.received == []


def test_repr_of_an_http_client_does_not_show_its_token(start: Starts) -> None:
    assert "hunter2" not in repr(HttpClient(HERE, token="hunter2"))


@pytest.mark.parametrize("body", ["[1]", "{", '{"a": NaN}', "\x00", "[" * 100_000])
def test_response_without_a_json_object_is_reported_as_unreadable(
    start: Starts, http_client: HttpClient, body: str
) -> None:
    server = start()
    server.engine.faults["/server_info"] = Fault(body=body)
    with pytest.raises(ServingError) as caught:
        http_client.get(server.address, "/server_info").json()
    assert caught.value.kind is ErrorKind.UNREADABLE


def test_error_message_is_one_line_without_control_characters(start: Starts, http_client: HttpClient) -> None:
    server = start()
    server.engine.faults["/health"] = Fault(status=500, body="no\n\x1b[2Jroom")
    with pytest.raises(ServingError) as caught:
        http_client.get(server.address, "/health").raise_for_status()
    assert (caught.value.kind, caught.value.message) == (ErrorKind.REJECTED, "responded with 500: no [2Jroom")
