"""Tests for the client's session code without a server."""

import io
import threading
import uuid
from concurrent.futures import CancelledError
from typing import Any

import cloudpickle
import httpx
import pytest

from berth.client import CallInterrupted, NotPicklable, RemoteError, SessionEnded, SessionError
from berth.client.models.sessions import SessionState
from berth.client.sessions.calls import PendingCalls
from berth.client.sessions.payload import decode_outcome, pickle_call
from berth.client.sessions.protocol import StartProgress
from berth.client.sessions.unpicklable import unpicklable_part
from pools.plugins import Plugin
from tests.client.stub_server import TIME, StubServer

SIZE_LIMIT = 1 << 20
LOCK = threading.Lock()


class Holder:
    def __init__(self) -> None:
        self.name, self.inner = "holder", {"deep": [1, threading.Lock()]}

    def work(self) -> str:
        return self.name


def uses_a_global() -> bool:
    return LOCK.locked()


def with_a_default(file: Any = io.TextIOWrapper(io.BytesIO())) -> Any:  # noqa: B008
    return file


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (uses_a_global, "f: the global LOCK"),
        (with_a_default, "f: default 0"),
        (Holder().work, "f.__self__.inner['deep'][1]"),
        ({"a": [Holder()]}, "f['a'][0].inner['deep'][1]"),
        (threading.Lock(), "f"),
    ],
)
def test_pickling_error_names_the_unpicklable_part(value: object, path: str) -> None:
    import sys

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        assert unpicklable_part(value, "f")[0] == path
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_pickling_error_names_the_argument_and_its_type() -> None:
    with pytest.raises(NotPicklable, match=r"argument 1\['x'\] cannot be pickled: it is a _thread.lock"):
        pickle_call(print, (1, {"x": threading.Lock()}), {}, SIZE_LIMIT)
    with pytest.raises(NotPicklable, match="argument end cannot be pickled"):
        pickle_call(print, (), {"end": threading.Lock()}, SIZE_LIMIT)


def test_unpicklable_remote_error_keeps_its_type_and_traceback() -> None:
    words = {"outcome": "error", "error": {"type": "Odd", "message": "no", "traceback": "line 1"}}
    _, error = decode_outcome(words, b"")
    assert isinstance(error, RemoteError)
    assert (str(error), "line 1" in str(error.__cause__)) == ("Odd: no", True)


def test_remote_system_exit_becomes_a_remote_error() -> None:
    words = {"outcome": "error", "error": {"type": "SystemExit", "message": "3"}}
    _, error = decode_outcome(words, cloudpickle.dumps(SystemExit(3)))
    assert isinstance(error, RemoteError)


def test_interrupted_call_and_ended_session_raise_different_errors() -> None:
    for kind, expected in (("Interrupted", CallInterrupted), ("SessionEnded", SessionEnded)):
        _, error = decode_outcome({"outcome": "failed", "error": {"type": kind, "message": "so"}}, b"")
        assert isinstance(error, expected)


def ended_call(key: uuid.UUID, value: object, **words: Any) -> tuple[dict[str, Any], bytes]:
    return {"key": str(key), "outcome": "value", "node": 0, "attempts": 1, **words}, cloudpickle.dumps(value)


def test_broadcast_completes_when_every_node_has_responded() -> None:
    calls = PendingCalls()
    future = calls.add(b"x", everywhere=True)
    [sent] = calls.take_batch()
    first, second = uuid.uuid4(), uuid.uuid4()
    calls.handle_outcome(*ended_call(second, "b", broadcast=str(sent.key)))
    nodes = [{"key": str(first), "node": 0}, {"key": str(second), "node": 1}]
    calls.set_broadcast_nodes([{"key": str(sent.key), "nodes": nodes}])
    assert not future.done()
    calls.handle_outcome(*ended_call(uuid.uuid4(), "late", broadcast=str(sent.key), late=True))
    calls.handle_outcome(*ended_call(first, "a", broadcast=str(sent.key)))
    assert future.result(0) == ["a", "b"]
    assert calls.outstanding_count == 0


def test_broadcast_is_not_batched_with_other_calls() -> None:
    calls = PendingCalls()
    for everywhere in (False, False, True, False):
        calls.add(b"x", everywhere=everywhere)
    assert [len(calls.take_batch()) for _ in range(4)] == [2, 1, 1, 0]


def test_call_cancelled_before_sending_is_not_sent() -> None:
    calls = PendingCalls()
    future = calls.add(b"x")
    assert future.cancel()
    assert (calls.take_batch(), calls.take_cancelled_calls(), calls.outstanding_count) == ([], [], 0)
    sent = calls.add(b"y")
    calls.take_batch()
    sent.cancel()
    assert calls.take_cancelled_calls() == [sent.key]
    calls.handle_outcome(*ended_call(sent.key, 1))  # the call has run nevertheless
    with pytest.raises(CancelledError):
        sent.result(0)


unpickled_names: list[str] = []


def record_unpickling(name: str) -> Exception:
    unpickled_names.append(name)
    return ValueError(name)


class RecordsUnpickling(Exception):
    def __reduce__(self) -> tuple[Any, ...]:
        return record_unpickling, ("it",)


@pytest.mark.parametrize("outcome", ["value", "error"])
@pytest.mark.parametrize("more", [{}, {"broadcast": str(uuid.uuid4())}, {"late": True}])
def test_result_of_another_clients_call_is_not_unpickled(outcome: str, more: dict[str, Any]) -> None:
    # An admin can submit calls to another user's session. The user's program must not unpickle their results.
    unpickled_names.clear()
    calls = PendingCalls()
    future = calls.add(b"x")
    calls.handle_outcome(
        *ended_call(uuid.uuid4(), RecordsUnpickling(), outcome=outcome, error={"message": "no"}, **more)
    )
    assert (unpickled_names, future.done()) == ([], False)
    calls.handle_outcome(*ended_call(future.key, RecordsUnpickling(), outcome=outcome))
    assert (unpickled_names, future.done()) == (["it"], True)


def test_failed_setup_of_a_late_node_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    words = {"outcome": "error", "error": {"message": "no such disk"}, "late": True}
    PendingCalls().handle_outcome(*ended_call(uuid.uuid4(), None, **words))
    assert "no such disk" in caplog.text


def test_reason_for_waiting_for_nodes_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    waiting = StartProgress()
    state = SessionState(
        id="1", name="s", project="vision", reason="WouldExceedFairShare", message="2 missing."
    )
    for waited in range(0, 95, 5):
        waiting.report(state, float(waited))
    assert [record.getMessage() for record in caplog.records] == [
        f"vision/s has waited for its nodes for {waited} s: WouldExceedFairShare: 2 missing."
        for waited in (10, 70)
    ]


def test_callback_of_a_future_can_submit_another_call() -> None:
    calls = PendingCalls()
    more: list[Any] = []
    first = calls.add(b"x")
    first.add_done_callback(lambda _: more.append(calls.add(b"y")))
    calls.handle_outcome(*ended_call(first.key, 1))
    assert (first.result(0), len(more), calls.outstanding_count) == (1, 1, 1)


def test_open_calls_of_an_ended_session_fail_and_new_calls_are_rejected() -> None:
    calls = PendingCalls()
    future = calls.add(b"x")
    calls.fail(SessionEnded("cancelled by carol"))
    with pytest.raises(SessionEnded, match="carol"):
        future.result(0)
    with pytest.raises(SessionEnded, match="carol"):
        calls.add(b"y")


def test_unpicklable_plugin_is_rejected_before_the_session_opens() -> None:
    lock = threading.Lock()
    plugin = Plugin.create("mine").with_decorate(lambda function: lock and function)
    pool = {"name": "local", "created_at": TIME, "updated_at": TIME}
    server = StubServer(httpx.Response(200, json=pool))
    with (
        pytest.raises(NotPicklable, match="plugin mine, decorate: the enclosing variable lock cannot"),
        server.client().session("local", plugins=[plugin]),
    ):
        pytest.fail("the session must not open")
    assert server.calls == ["GET /api/v1/node-pools/local"]


def test_unopened_session_rejects_calls() -> None:
    session = StubServer(httpx.Response(200, json={})).client().session("local")
    with pytest.raises(SessionError, match="not open"):
        session.submit(print)
