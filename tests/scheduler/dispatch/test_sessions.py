"""Tests that session calls are leased in turn, never lost, and completed once."""

import uuid
from dataclasses import dataclass
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from berth.core.errors import Conflict, TooLarge, Unauthenticated
from pools.joining import secrets
from pools.runtimes.base import PodCause
from projects.actor import Actor
from projects.models import Call, Phase, Pod, Session, Workload
from projects.services import sessions, workloads
from projects.services.sessions import calls
from projects.services.sessions import workers as session_workers
from projects.services.sessions.calls import EndedCall, NewCall
from projects.services.sessions.workers import CallResult, WorkerVersions
from tests.scheduler.stage import Stage

PYTHON = WorkerVersions("3.11.7", "3.1.2")


@dataclass
class SessionPlay:
    stage: Stage
    session: Session
    after: int = 0

    @property
    def pods(self) -> list[Pod]:
        return [
            session_workers.authenticate_pod(secrets.pod_secret(str(pod.pk)))
            for pod in self.stage.pods(self.session.workload, "starting", "running", "stopping")
        ]

    def join(self) -> None:
        for pod in self.pods:
            session_workers.join(pod=pod, versions=PYTHON, now=self.stage.clock.now())

    def add(self, *payloads: bytes, everywhere: bool = False) -> list[uuid.UUID]:
        new = [NewCall(uuid.uuid4(), payload, everywhere) for payload in payloads]
        calls.add(session=self.session, calls=new, now=self.stage.clock.now())
        return [call.key for call in new]

    def take(self, node: int, having: tuple[int, ...] = ()) -> dict[bytes, int]:
        pod = next(pod for pod in self.pods if pod.rank == node)
        orders = session_workers.deliver_leased_calls(pod=pod, received=having, now=self.stage.clock.now())
        return {order.payload: order.number for order in orders}

    def accept_results(
        self, node: int, *numbers: int, outcome: str = "value", result: bytes = b"done"
    ) -> None:
        pod = next(pod for pod in self.pods if pod.rank == node)
        session_workers.accept_results(
            pod=pod, results=[CallResult(number, outcome, {}, result) for number in numbers]
        )

    def ended(self) -> list[EndedCall]:
        results = calls.fetch_ended_calls(session=self.session, after=self.after, now=self.stage.clock.now())
        self.after = results[-1].number if results else self.after
        return results


def open_session(
    stage: Stage,
    *,
    nodes: int = 2,
    actor: Actor | None = None,
    slots: int = 1,
    max_attempts: int = 3,
    idle_timeout: int = 600,
) -> Session:
    settings = sessions.SessionSettings(
        "http://testserver",
        "process",
        slots,
        max_attempts,
        idle_timeout,
        python="3.11.4",
        cloudpickle="3.1.0",
    )
    document = {
        "name": "play", "project": "vision", "pools": ["local"], "node": {"replicas": nodes, "gpu": 1},
    }  # fmt: skip
    return sessions.open_session(
        actor=actor or stage.cast.dave, document=document, settings=settings, now=stage.clock.now()
    )


@pytest.fixture
def play(stage: Stage) -> SessionPlay:
    play = SessionPlay(stage, open_session(stage))
    stage.tick(3)
    assert stage.phase(play.session.workload) == Phase.RUNNING
    play.join()
    return play


def test_session_starts_as_a_gang_once_all_its_pods_fit(stage: Stage) -> None:
    session = open_session(stage, nodes=5)
    stage.tick(3)
    assert stage.phase(session.workload) == Phase.PENDING
    assert stage.pods(session.workload) == []
    stage.node(2)
    stage.tick(3)
    assert stage.phase(session.workload) == Phase.RUNNING
    assert len(stage.pods(session.workload, "running")) == 5


def test_session_pods_receive_an_address_and_a_secret_that_is_not_in_the_spec(play: SessionPlay) -> None:
    [order, _] = [play.stage.runtime.order(str(pod.pk)) for pod in play.pods]
    assert order.env["BERTH_URL"] == "http://testserver"
    assert session_workers.authenticate_pod(order.secret_env["BERTH_SESSION_SECRET"]).rank == 0
    workload = Workload.objects.get(pk=play.session.pk)
    assert "BERTH_SESSION_SECRET" not in str(workload.spec)


@pytest.mark.shows("SKY-07")
def test_calls_are_distributed_across_ready_nodes(play: SessionPlay) -> None:
    play.add(b"a", b"b", b"c")
    first, second = play.take(0), play.take(1)
    assert (list(first), list(second)) == ([b"a"], [b"b"])
    play.accept_results(1, second[b"b"])
    assert list(play.take(1)) == [b"c"]


def test_call_is_stored_and_run_once_despite_lost_responses_and_repeated_requests(play: SessionPlay) -> None:
    new = [NewCall(uuid.uuid4(), b"a")]
    calls.add(session=play.session, calls=new)
    calls.add(session=play.session, calls=new)
    assert play.session.calls.count() == 1
    number = play.take(0)[b"a"]
    assert play.take(0) == {b"a": number}, "the response to the first request was lost"
    assert play.take(0, having=(number,)) == {}
    play.accept_results(1, number, result=b"first")
    play.accept_results(0, number, result=b"second")
    for _ in range(2):  # the client asks again until it acknowledges the result
        [end] = calls.fetch_ended_calls(session=play.session, after=0)
        assert (end.outcome, end.result, end.attempts) == ("value", b"first", 1)
    assert [one.result for one in play.ended()] == [b"first"]
    assert play.ended() == []
    assert not Call.objects.filter(session=play.session).exists()


@pytest.mark.heavy
def test_call_returned_by_a_node_may_be_sent_to_that_node_again(play: SessionPlay) -> None:
    # The call is sent again even while the node's last poll, which contains the call, is still open.
    play.add(b"a")
    number = play.take(0)[b"a"]
    play.accept_results(0, number, outcome="interrupted")
    play.accept_results(1, play.take(1)[b"a"], outcome="interrupted")
    assert play.take(0, having=(number,)) == {b"a": number}


def test_call_of_a_lost_worker_is_retried_up_to_its_limit(play: SessionPlay) -> None:
    play.add(b"a")
    for ended in (0, 0, 1):
        assert {**play.take(0), **play.take(1)}.keys() == {b"a"}
        play.stage.clock.advance(100)  # in this time, no worker reports
        results = play.ended()
        assert len(results) == ended
        play.join()
    [end] = results
    assert end.outcome == "failed"
    assert end.error["type"] == "Interrupted"
    assert "3 times" in end.error["message"]


@pytest.mark.heavy
def test_unresponsive_worker_receives_calls_again_once_it_polls(play: SessionPlay) -> None:
    play.stage.clock.advance(100)
    assert play.ended() == []
    assert play.session.workers.filter(state="ready").count() == 0
    play.take(0)
    play.add(b"a")
    assert list(play.take(0)) == [b"a"]


def test_interrupted_calls_of_an_evicted_session_are_rerun(play: SessionPlay) -> None:
    play.add(b"a", b"b")
    assert (list(play.take(0)), list(play.take(1))) == ([b"a"], [b"b"])
    for pod in play.pods:
        play.stage.runtime.end(str(pod.pk), cause=PodCause.LOST)
    play.stage.tick(8, seconds=10)
    assert play.ended() == []
    assert play.stage.phase(play.session.workload) == Phase.RUNNING
    assert play.session.workload.run == 2
    play.join()
    results = {**play.take(0), **play.take(1)}
    assert sorted(results) == [b"a", b"b"]
    for node in (0, 1):
        play.accept_results(node, *results.values())
    assert sorted(one.attempts for one in play.ended()) == [2, 2]


@pytest.mark.heavy
@pytest.mark.shows("SKY-08")
def test_broadcast_runs_on_every_current_and_later_node(stage: Stage) -> None:
    play = SessionPlay(stage, open_session(stage))
    stage.tick(3)
    first, second = play.pods
    session_workers.join(pod=first, versions=PYTHON, now=stage.clock.now())
    [key] = play.add(b"setup", everywhere=True)
    play.accept_results(0, play.take(0)[b"setup"])
    assert [(one.broadcast, one.node, one.late) for one in play.ended()] == [(key, 0, False)]
    play.add(b"later")
    session_workers.join(pod=second, versions=PYTHON, now=stage.clock.now())
    assert list(play.take(1)) == [b"setup"]
    play.accept_results(1, play.take(1)[b"setup"])
    assert [(one.broadcast, one.node, one.late) for one in play.ended()] == [(key, 1, True)]


def test_broadcast_without_a_node_is_rejected(stage: Stage) -> None:
    play = SessionPlay(stage, open_session(stage))
    with pytest.raises(Conflict) as rejected:
        play.add(b"setup", everywhere=True)
    assert rejected.value.extra["reason"] == "no-node"
    assert not play.session.calls.exists()


def test_open_calls_of_an_ended_session_fail_with_the_reason(play: SessionPlay) -> None:
    play.add(b"a", b"b", b"c")
    workloads.cancel(actor=play.stage.cast.carol, workload=play.session.workload)
    play.stage.tick(3)
    for pod in play.stage.pods(play.session.workload, "stopping"):
        play.stage.runtime.end(str(pod.pk), exit_code=0)
    play.stage.tick(2)
    assert play.stage.phase(play.session.workload) == Phase.CANCELLED
    ended = play.ended()
    assert [one.error["type"] for one in ended] == ["SessionEnded"] * 3
    assert "carol" in ended[0].error["message"]
    with pytest.raises(Conflict, match="carol"):
        play.add(b"d")


def test_ended_session_completes_and_its_calls_are_deleted_with_the_workload(play: SessionPlay) -> None:
    play.add(b"a")
    sessions.end_session(actor=play.stage.cast.dave, session=play.session)
    play.stage.tick(2)
    for pod in play.stage.pods(play.session.workload, "stopping"):
        play.stage.runtime.end(str(pod.pk), exit_code=0)
    play.stage.tick(2)
    assert play.stage.phase(play.session.workload) == Phase.COMPLETED
    assert play.session.workload.message == "Ended by dave."
    workloads.delete(actor=play.stage.cast.dave, workload=play.session.workload)
    assert not Call.objects.exists()


@pytest.mark.heavy
def test_unfetched_results_are_deleted_after_the_session(play: SessionPlay) -> None:
    play.add(b"a")
    play.accept_results(0, play.take(0)[b"a"])
    end = play.stage.clock.now()
    assert calls.delete_ended_session_calls(before=end) == 0
    Workload.objects.filter(pk=play.session.pk).update(ended_at=end, phase=Phase.COMPLETED)
    assert calls.delete_ended_session_calls(before=end) == 0
    assert calls.delete_ended_session_calls(before=end + timedelta(seconds=1)) == 1


def test_session_without_a_client_ends(play: SessionPlay) -> None:
    play.add(b"a")
    play.stage.tick(1, seconds=599)
    assert play.stage.phase(play.session.workload) == Phase.RUNNING
    play.ended()
    play.stage.tick(1, seconds=590)
    assert play.stage.phase(play.session.workload) == Phase.RUNNING
    play.stage.tick(2, seconds=20)
    assert play.stage.phase(play.session.workload) == Phase.STOPPING
    assert "sent no request for 600 s" in play.session.workload.message


@pytest.mark.heavy
def test_worker_with_a_different_python_minor_version_ends_the_session(play: SessionPlay) -> None:
    assert (
        session_workers.fail_on_version_mismatch(pod=play.pods[1], versions=WorkerVersions("3.11.9", "3.1.0"))
        == ""
    )
    error = session_workers.fail_on_version_mismatch(
        pod=play.pods[1], versions=WorkerVersions("3.12.1", "3.1.2")
    )
    assert "runs Python 3.12.1, but the client runs 3.11.4" in error
    play.session.refresh_from_db()
    assert play.session.error == error
    assert play.stage.phase(play.session.workload) == Phase.STOPPING


def test_only_the_secret_of_a_running_session_pod_is_accepted(play: SessionPlay, stage: Stage) -> None:
    other = stage.submit("train")
    stage.tick(3)
    [other_pod, *_] = stage.pods(other, "running")
    for secret in (secrets.pod_secret(str(other_pod.pk)), secrets.node_secret(1), "pod.x.y", ""):
        with pytest.raises(Unauthenticated):
            session_workers.authenticate_pod(secret)
    [pod, _] = play.pods
    play.stage.runtime.end(str(pod.pk), exit_code=1)
    play.stage.tick(1)
    with pytest.raises(Unauthenticated):
        session_workers.authenticate_pod(secrets.pod_secret(str(pod.pk)))


@pytest.mark.heavy
def test_call_and_session_sizes_are_limited(play: SessionPlay, settings: object) -> None:
    settings.BERTH_CALL_MIB = settings.BERTH_SESSION_MIB = 1  # type: ignore[attr-defined]
    with pytest.raises(TooLarge, match="the maximum is 1 MiB"):
        play.add(bytes(2**20 + 1))
    play.add(bytes(2**19), bytes(2**19))
    with pytest.raises(Conflict) as rejected:
        play.add(b"x")
    assert rejected.value.extra["reason"] == "full"


@pytest.mark.heavy
def test_cancelled_calls_are_not_started(play: SessionPlay) -> None:
    keys = play.add(b"a", b"b", b"c")
    calls.cancel_calls(session=play.session, keys=keys[2:])
    for node, payload in ((0, b"a"), (1, b"b")):
        play.accept_results(node, play.take(node)[payload])
    assert play.take(0) == {}
    assert sorted(one.outcome for one in play.ended()) == ["cancelled", "value", "value"]


@pytest.mark.heavy
def test_call_payloads_are_loaded_only_on_delivery(play: SessionPlay) -> None:
    play.add(b"a", b"b")
    keys = play.add(b"c")
    number = play.take(0)[b"a"]
    with CaptureQueriesContext(connection) as queries:
        play.accept_results(0, number)
        calls.cancel_calls(session=play.session, keys=keys)
        Workload.objects.filter(pk=play.session.pk).update(ended_at=play.stage.clock.now(), phase="completed")
        calls.delete_ended_session_calls(before=play.stage.clock.now() + timedelta(seconds=1))
    read = [query["sql"] for query in queries.captured_queries if query["sql"].startswith("SELECT")]
    assert any('"projects_call"."state"' in sql for sql in read)
    assert not any(f'"projects_call"."{column}"' in sql for sql in read for column in ("payload", "result"))
