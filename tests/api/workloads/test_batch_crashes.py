"""Tests for a web process that is killed between two queries of a batch request."""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections

from berth.server.api.models import StoredResponse
from projects.models import Audit, Event, Workload, WorkloadRole
from tests.api.conftest import Caller
from tests.cast import training
from tests.harness.samples import sample

PATH = "workloads:batch"
GOOD = 2  # number of valid documents in each batch
ALL = (GOOD, GOOD, GOOD, GOOD)  # numbers of workloads, roles, events and audit entries
NOTHING = (0, 0, 0, 0)

pytestmark = pytest.mark.django_db(transaction=True)


class Killer:
    """Kills the process after a given number of queries, or only counts the queries."""

    def __init__(self, after: int | None = None) -> None:
        self.after, self.count = after, 0

    def __call__(self, execute: Callable[..., Any], *arguments: Any) -> Any:
        answer = execute(*arguments)
        self.count += 1
        if self.count == self.after:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


def batch(name: str, atomic: bool) -> dict[str, Any]:
    items: list[Any] = [training(f"{name}-{n}", project="vision") for n in range(GOOD)]
    return {"items": items if atomic else [*items, {"name": "-"}], "atomic": atomic}


def post_and_die(caller: Caller, body: dict[str, Any], key: str, after: int | None) -> None:
    """Send the request in a forked process. The process is killed after a given query, or after the
    response.
    """
    connections.close_all()
    pid = os.fork()
    if pid == 0:
        try:
            with connection.execute_wrapper(Killer(after)):
                caller.post(PATH, body, Idempotency_Key=key)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def stored(prefix: str) -> tuple[int, int, int, int]:
    workloads = Workload.objects.filter(name__startswith=f"{prefix}-")
    return (
        workloads.count(),
        WorkloadRole.objects.filter(workload__in=workloads).count(),
        Event.objects.filter(kind="submitted", subject__startswith=f"{prefix}-").count(),
        Audit.objects.filter(action="submit", object_name__contains=f"{prefix}-").count(),
    )


def assert_stored_once(caller: Caller, body: dict[str, Any], key: str, *, is_replayed: bool) -> None:
    """Repeat the request twice, and check that each workload exists once and the response is the same."""
    first, second = (caller.post(PATH, body, Idempotency_Key=key) for _ in range(2))
    assert (first.status_code, first.content) == (second.status_code, second.content)
    assert (first.get("Idempotency-Replayed"), second["Idempotency-Replayed"]) == (
        "true" if is_replayed else None, "true",
    )  # fmt: skip
    assert first.json()["stored"] == GOOD
    assert first.json()["rejected"] == len(body["items"]) - GOOD
    assert stored(key) == ALL
    answered = {item["workload"]["id"] for item in first.json()["items"] if item["workload"]}
    assert answered == {str(row.pk) for row in Workload.objects.filter(name__startswith=f"{key}-")}


@pytest.mark.parametrize("atomic", sample([False, True], 1))
def test_retrying_a_batch_after_a_crash_creates_no_duplicates(dave: Caller, atomic: bool) -> None:
    counter = Killer()
    with connection.execute_wrapper(counter):
        assert dave.post(PATH, batch("whole", atomic), Idempotency_Key="whole").json()["stored"] == GOOD
    outcomes = []
    for after in range(1, counter.count + 1):
        name = f"killed-{after}"
        post_and_die(dave, batch(name, atomic), name, after)
        outcomes.append(stored(name))
        has_committed = StoredResponse.objects.filter(key=name).exists()
        assert outcomes[-1] == (ALL if has_committed else NOTHING), f"after statement {after}"
        assert_stored_once(dave, batch(name, atomic), name, is_replayed=has_committed)
    before_commit = outcomes.count(NOTHING)
    assert before_commit >= 7
    assert outcomes[before_commit:] == [ALL] * (len(outcomes) - before_commit)


@pytest.mark.parametrize("atomic", [False, True])
def test_batch_with_a_lost_response_is_not_stored_again(dave: Caller, atomic: bool) -> None:
    post_and_die(dave, batch("lost", atomic), "lost", None)
    assert stored("lost") == ALL
    assert_stored_once(dave, batch("lost", atomic), "lost", is_replayed=True)
