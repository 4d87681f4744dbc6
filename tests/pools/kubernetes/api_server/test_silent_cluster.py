"""Tests for a cluster whose API server accepts calls but never responds.

The calls have no timeout, so a test that waits for a call never ends.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pools.kubernetes.api_server import api, calls
from pools.kubernetes.worker import THREADS
from pools.models import Node
from pools.runtimes.base import PodState, RuntimeFailure, StartRejected
from projects.models import Phase, Quota
from tests import factories
from tests.cast import make_cast
from tests.contracts.kubernetes.stage import FakeKubernetesStage
from tests.contracts.pods import ended, poll_until, running
from tests.fakes.kubernetes import FakeCluster, serve
from tests.fakes.kubernetes.store import Rejection
from tests.scheduler.stage import Stage

IMAGE = f"ghcr.io/org/train@sha256:{'1' * 64}"


class SilentStage(FakeKubernetesStage):
    def stop_responding(self) -> None:
        """Stop responding to calls, and make callers stop waiting immediately."""
        self.cluster.answers.clear()
        self.access["prod"].cluster.worker.patience = 0

    def respond(self) -> None:
        self.cluster.answers.set()


def repeat(order: Callable[[], None]) -> None:
    """Repeat a request until it succeeds, as the scheduler does."""

    def has_succeeded() -> bool:
        try:
            order()
        except RuntimeFailure:
            return False
        return True

    poll_until(has_succeeded)


@pytest.fixture
def k8s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentStage]:
    monkeypatch.setattr(calls, "TIMEOUTS", {})
    cluster = FakeCluster()
    with serve(cluster) as url:
        stage = SilentStage(tmp_path / "runtime", cluster, url)
        poll_until(stage.access["prod"].cluster.mirror.nodes)
        poll_until(lambda: stage.runtime.list_pods() == ())
        yield stage
        cluster.answers.set()
        stage.close()


def test_calls_to_an_unresponsive_cluster_return_immediately_and_take_effect_later(k8s: SilentStage) -> None:
    k8s.runtime.start(k8s.long("old"))
    running(k8s.runtime, "old")
    k8s.stop_responding()
    names = [f"p-{number:02}" for number in range(30)]
    for _ in range(2):
        for name in names:
            with pytest.raises(RuntimeFailure, match="has not responded to this call yet"):
                k8s.runtime.start(k8s.long(name))
        with pytest.raises(RuntimeFailure, match="has not responded"):
            k8s.runtime.stop("old", 0)
        with pytest.raises(RuntimeFailure, match="has not responded"):
            k8s.runtime.tail_log("old", 1)
    assert k8s.runtime.get_reports(["old", "p-00"])["old"].state is PodState.RUNNING
    assert k8s.runtime.list_pods() == ("old", *names)
    k8s.respond()
    for name in names:
        repeat(partial(k8s.runtime.start, k8s.long(name)))
        running(k8s.runtime, name)
    repeat(lambda: k8s.runtime.stop("old", 0))
    ended(k8s.runtime, "old")
    pods = [pod["metadata"]["name"] for pod in k8s.cluster.store.of_kind("pods")]
    assert sorted(pods) == names


class CountedCalls:
    """Counts the calls to an API server, in total and unfinished."""

    def __init__(self, patch: pytest.MonkeyPatch, *methods: str) -> None:
        self._methods = methods
        self.all: list[tuple[str, str]] = []  # (method, kind) pairs
        self.unfinished = self.most_unfinished = 0
        self._lock, self._call = threading.Lock(), api.Api._call

        def call(client: api.Api, *arguments: Any) -> dict[str, Any]:
            is_counted = not self._methods or arguments[0] in self._methods
            return (self._count if is_counted else self._call)(client, *arguments)

        patch.setattr(api.Api, "_call", call)

    def _count(self, client: api.Api, method: str, path: str, *rest: Any) -> dict[str, Any]:
        with self._lock:
            self.all.append((method, path.rpartition("/")[2]))
            self.unfinished += 1
            self.most_unfinished = max(self.most_unfinished, self.unfinished)
        try:
            return self._call(client, method, path, *rest)
        finally:
            with self._lock:
                self.unfinished -= 1


@pytest.mark.heavy
def test_started_pods_are_created_concurrently_with_a_bounded_number_of_calls(
    k8s: SilentStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    k8s.runtime.start(k8s.long("first"))  # this call also creates the namespace
    calls = CountedCalls(monkeypatch)
    orders = [replace(k8s.long(f"p-{number:02}"), secret_env={"TOKEN": "x"}) for number in range(40)]
    k8s.stop_responding()
    for order in orders:
        k8s.runtime.begin_start(order)
    poll_until(lambda: calls.unfinished, lambda unfinished: unfinished == THREADS)
    assert calls.all == [("POST", "pods")] * THREADS
    k8s.respond()
    for order in orders:
        repeat(partial(k8s.runtime.start, order))
        running(k8s.runtime, order.pod_id)
    assert calls.most_unfinished == THREADS
    assert sorted(calls.all) == [*[("POST", "pods")] * 40, *[("POST", "secrets")] * 40]


def test_pod_without_secrets_takes_three_requests_from_start_to_deletion(
    k8s: SilentStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One request starts the pod, one copies its log, and one deletes it.
    k8s.runtime.start(k8s.long("first"))  # this call also creates the namespace
    requests: list[str] = []
    send = calls.Connections.send

    def counted_send(client: calls.Connections, method: str, path: str, *rest: Any) -> calls.Response:
        requests.append(f"{method} {path.partition('/pods')[2]}")
        return send(client, method, path, *rest)

    monkeypatch.setattr(calls.Connections, "send", counted_send)
    k8s.runtime.start(k8s.long("second"))
    running(k8s.runtime, "second")
    assert requests == ["POST "]
    k8s.cluster.end_pod("second", 0)
    poll_until(lambda: k8s.runtime.get_reports(["second"])["second"].state, lambda state: state == "exited")
    k8s.runtime.forget("second")
    assert requests == ["POST ", "GET /second/log", "DELETE /second"]


def test_repeated_start_of_a_created_pod_makes_no_api_call(
    k8s: SilentStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = replace(k8s.long("p-1"), secret_env={"TOKEN": "x"})
    k8s.runtime.start(order)
    calls = CountedCalls(monkeypatch)
    k8s.runtime.start(order)
    assert calls.all == []
    restored = k8s.restart()
    restored.start(order)
    assert ("POST", "pods") in calls.all, "a new process does not know whether the secrets exist"


@pytest.mark.heavy
def test_ended_pods_are_deleted_concurrently_with_a_bounded_number_of_calls(
    k8s: SilentStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"p-{number:02}" for number in range(20)]
    for name in names:
        k8s.runtime.start(k8s.long(name))
        running(k8s.runtime, name)
        k8s.end_pod(name, 0)
        ended(k8s.runtime, name)
    calls = CountedCalls(monkeypatch, "DELETE")
    k8s.stop_responding()
    for name in names:
        k8s.runtime.forget_in_background(name)
    with pytest.raises(RuntimeFailure, match="has not responded"):
        k8s.runtime.forget(names[0])
    k8s.respond()
    for name in names:
        repeat(partial(k8s.runtime.forget, name))
    assert sorted(calls.all) == [("DELETE", name) for name in names], "each pod is deleted once"
    assert 1 < calls.most_unfinished <= THREADS
    assert k8s.cluster.store.of_kind("pods") == []
    assert k8s.runtime.list_pods() == ()


@pytest.mark.heavy
def test_rejection_of_a_background_start_is_reported(k8s: SilentStage) -> None:
    k8s.cluster.rejections["create", "pods"] = Rejection(403, "Forbidden", "exceeded quota: compute")
    k8s.runtime.begin_start(k8s.long("p-1"))
    with pytest.raises(StartRejected, match="exceeded quota"):
        k8s.runtime.start(k8s.long("p-1"))
    k8s.cluster.rejections.clear()
    k8s.runtime.begin_start(k8s.long("p-1"))
    k8s.runtime.start(k8s.long("p-1"))
    running(k8s.runtime, "p-1")


def test_pod_stopped_while_starting_is_removed(k8s: SilentStage) -> None:
    k8s.stop_responding()
    with pytest.raises(RuntimeFailure):
        k8s.runtime.start(k8s.long("p-1"))
    with pytest.raises(RuntimeFailure):
        k8s.runtime.stop("p-1", 0)
    k8s.respond()
    repeat(lambda: k8s.runtime.stop("p-1", 0))
    ended(k8s.runtime, "p-1")
    assert k8s.cluster.store.of_kind("pods") == []


@pytest.mark.django_db(transaction=True)
def test_unresponsive_cluster_does_not_block_other_pools(k8s: SilentStage) -> None:
    stage = Stage(make_cast())
    stage.node(0)
    remote = factories.pool("prod", provider="kubernetes", runtime="kubernetes")
    node = stage.node(0, remote)
    Node.objects.filter(pk=node.pk).update(instance_id="node-1/1")
    stage.loop.context.runtimes = lambda pool: k8s.runtime if pool.pk == remote.pk else stage.runtime
    for pool in (stage.cast.pool, remote):
        for owner in ({"department": stage.cast.research}, {"project": stage.cast.vision}):
            Quota.objects.create(pool=pool, gpu_milli=2000, **owner)
    k8s.stop_responding()
    far = stage.submit("far", pools=["prod"], image=IMAGE)
    near = stage.submit("near", pools=["local"])
    stage.tick(4, seconds=2)
    assert stage.phase(near) == Phase.RUNNING
    assert stage.phase(far) == Phase.STARTING
    assert "could not be started yet" in far.message
    assert "has not responded to this call yet" in far.message
    k8s.respond()

    def phase() -> str:
        stage.tick(seconds=2)
        return stage.phase(far)

    poll_until(phase, lambda value: value == Phase.RUNNING)
    assert "started" not in far.message
