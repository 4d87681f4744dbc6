"""Sentences agree in number for zero, one and two."""

import re
from typing import Any

import pytest

from berth.core.words import amount, counted, figure
from scheduler.engine.explain.reasons import SENTENCES, blocker
from scheduler.engine.plan import Reason

COUNTS = (0, 1, 2)
# One of something is never said with a plural, and nothing is said of "1 times".
ONE_OF_MANY = re.compile(r"(?<![\d.])1 (?:more )?(?:nodes|GPUs|CPUs|trials|times|replicas|pods)\b")
MANY_OF_ONE = re.compile(r"(?<![\d.])(?:0|2) (?:more )?(?:node|GPU|CPU|trial|time|replica|pod)\b")


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory_mib"])
def test_every_reason_counts_as_people_do(reason: Reason, count: int, resource: str) -> None:
    milli = count if resource == "memory_mib" else count * 1000
    amounts = dict.fromkeys(
        ("asked", "allocated", "bound", "free", "share", "quota", "most", "takeable", "protected"), milli
    )
    counts = {"nodes": count, "trials": count, "preemptions": count, "seconds": count}
    words = dict.fromkeys(("role", "queue", "level", "behind", "waits_for", "why", "obstacles"), "somebody")
    missing = count if reason is Reason.WAITING_FOR_GANG else milli
    said = blocker(reason, {"resource": resource, "biggest_block": milli, "missing": missing,
                            **amounts, **counts, **words}).message  # fmt: skip
    assert not ONE_OF_MANY.search(said), said
    assert not MANY_OF_ONE.search(said), said
    assert "?" not in said, said
    assert said.endswith(".") and ".." not in said


def test_every_reason_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Reason)


@pytest.mark.parametrize(("count", "said"), [
    (0, "0 of its replicas are missing."), (1, "1 of its replicas is missing."),
    (2, "2 of its replicas are missing."),
])  # fmt: skip
def test_verbs_follow_what_they_count(count: int, said: str) -> None:
    assert blocker(Reason.WAITING_FOR_GANG, {"missing": count}).message == said


@pytest.mark.parametrize(("not_there", "said"), [
    ({}, "It waits for p/a, p/b to complete."),
    ({"not_there": "p/b"}, "It waits for p/a, p/b to complete; there is no workload p/b yet."),
])  # fmt: skip
def test_who_waits_for_a_name_that_nobody_has_is_told_so(not_there: dict[str, str], said: str) -> None:
    assert blocker(Reason.DEPENDENCY_NOT_MET, {"waits_for": "p/a, p/b", **not_there}).message == said


@pytest.mark.parametrize(("count", "said"), [(1, "1 more node"), (2, "2 more nodes")])
def test_one_more_node_is_one(count: int, said: str) -> None:
    sentence = f"{said} would serve it; the pool can grow."
    assert blocker(Reason.WAITING_FOR_SCALE_UP, {"nodes": count}).message == sentence


@pytest.mark.parametrize(("numbers", "said"), [
    ({"preemptions": 0, "restarts": 0, "seconds": 9}, "It may start again in 9 s."),
    ({"preemptions": 2, "restarts": 0, "seconds": 9}, "It may start again in 9 s, after 2 evictions."),
    ({"preemptions": 0, "restarts": 1, "seconds": 9}, "It may start again in 9 s, after 1 failed run."),
    ({"why": "its own pods have not stopped yet", "until": None},
     "It cannot start yet: its own pods have not stopped yet."),
])  # fmt: skip
def test_backoff_names_its_cause(numbers: dict[str, Any], said: str) -> None:
    assert blocker(Reason.BACKOFF, numbers).message == said


def test_a_reservation_on_booting_nodes_does_not_wait_for_victims() -> None:
    said = blocker(Reason.WAITING_FOR_SCALE_UP, {"pods": 4, "nodes": 2, "booting": 2}).message
    assert said == "It is reserved on 2 nodes that are booting."


def test_amounts_carry_their_units() -> None:
    assert [amount("gpu", milli) for milli in (0, 500, 1000, 2000, None)] == [
        "no GPU", "0.5 GPUs", "1 GPU", "2 GPUs", "any number of GPUs",
    ]  # fmt: skip
    assert amount("memory_mib", 1) == "1 MiB of memory"
    assert amount("memory_mib", None) == "any amount of memory"
    assert counted(1, "entry", "entries") == "1 entry"
    assert counted(2, "entry", "entries") == "2 entries"
    assert [figure(number) for number in (8.0, 0.5, 1.2346)] == ["8", "0.5", "1.235"]
