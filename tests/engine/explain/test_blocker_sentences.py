"""Tests that blocker sentences are grammatical."""

import re
from typing import Any

import pytest

from berth.core.wording.words import format_amount, format_count, format_number
from scheduler.engine.explain.dependencies import dependency_numbers
from scheduler.engine.explain.reasons import MESSAGE_TEMPLATES, blocker
from scheduler.engine.model import Dependency
from scheduler.engine.plan import Reason

COUNTS = (0, 1, 2)
NOUNS = "node|GPU|CPU|attempt|replica|pod"
PLURAL_OF_ONE = re.compile(rf"(?<![\d.])1 (?:more |booting |placement )?(?:{NOUNS})s\b")
SINGULAR_OF_MANY = re.compile(rf"(?<![\d.])[02] (?:more |booting |placement )?(?:{NOUNS})\b")


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("resource", ["gpu", "cpu", "memory_mib"])
def test_pending_reasons_use_singular_and_plural_correctly(reason: Reason, count: int, resource: str) -> None:
    milli = count if resource == "memory_mib" else count * 1000
    amounts = dict.fromkeys(
        (
            "requested",
            "allocated",
            "used",
            "bound",
            "held",
            "free",
            "share",
            "quota",
            "most",
            "reclaimable",
            "protected",
        ),
        milli,
    )
    counts = {"nodes": count, "attempts": count, "preemptions": count, "seconds": count}
    names = dict.fromkeys(
        (
            "role",
            "queue",
            "level",
            "behind",
            "awaited",
            "why",
            "obstacles",
            "cluster_quota",
            "namespace",
            "cluster_resource",
        ),
        "name",
    )
    missing = count if reason is Reason.WAITING_FOR_GANG else milli
    names["code"] = "Fetching code from https://git.example.org/train.git."
    message = blocker(reason, {"resource": resource, "biggest_block": milli, "missing": missing,
                               **amounts, **counts, **names}).message  # fmt: skip
    assert not PLURAL_OF_ONE.search(message), message
    assert not SINGULAR_OF_MANY.search(message), message
    assert "?" not in message, message
    assert message.endswith(".") and ".." not in message


def test_every_pending_reason_has_a_message() -> None:
    assert set(MESSAGE_TEMPLATES) == set(Reason)


@pytest.mark.parametrize(("count", "message"), [
    (0, "0 replicas are missing."), (1, "1 replica is missing."), (2, "2 replicas are missing."),
])  # fmt: skip
def test_verb_agrees_with_the_number_of_missing_replicas(count: int, message: str) -> None:
    assert blocker(Reason.WAITING_FOR_GANG, {"missing": count}).message == message


@pytest.mark.parametrize(("dependencies", "message"), [
    ([Dependency("p/a")], "Waiting for p/a to complete."),
    ([Dependency("p/a", "failed", "running")], "Waiting for p/a to fail (running)."),
    (
        [Dependency("p/a", status="running"), Dependency("p/b", "any", "not submitted")],
        "Waiting for p/a to complete (running) and p/b to end (not submitted).",
    ),
    (
        [Dependency(f"p/{number}", "any") for number in range(7)],
        "Waiting for p/0 to end, p/1 to end, p/2 to end, p/3 to end, p/4 to end and 2 more.",
    ),
])  # fmt: skip
def test_pending_reason_names_the_unmet_dependencies(dependencies: list[Dependency], message: str) -> None:
    assert blocker(Reason.DEPENDENCY_NOT_MET, dependency_numbers(dependencies)).message == message


@pytest.mark.parametrize(("reclaimable", "missing", "message"), [
    (2000, 1000, "Only 2 of the missing 3 GPUs can be reclaimed."),
    (0, 2000, "No GPU can be reclaimed."),
    (2000, 0, "Reclaiming up to 2 GPUs would not make the workload fit."),
])  # fmt: skip
def test_pending_reason_states_the_reclaimable_amount(reclaimable: int, missing: int, message: str) -> None:
    numbers: dict[str, int | str] = {"resource": "gpu", "reclaimable": reclaimable, "missing": missing}
    assert blocker(Reason.NO_RECLAIMABLE_RESOURCES, numbers).message == message


@pytest.mark.parametrize(("count", "nodes"), [(1, "1 node"), (2, "2 nodes")])
def test_pending_reason_states_how_many_nodes_the_pool_adds(count: int, nodes: str) -> None:
    message = f"The pool adds {nodes} for its pending workloads."
    assert blocker(Reason.WAITING_FOR_SCALE_UP, {"nodes": count}).message == message


@pytest.mark.parametrize(("numbers", "message"), [
    ({"preemptions": 0, "restarts": 0, "until": 9}, "Restart delay until 1970-01-01 00:00:09 UTC."),
    ({"preemptions": 2, "restarts": 0, "until": 9},
     "Restart delay until 1970-01-01 00:00:09 UTC, after 2 evictions."),
    ({"preemptions": 0, "restarts": 1, "until": 9},
     "Restart delay until 1970-01-01 00:00:09 UTC, after 1 failed run."),
    ({"preemptions": 0, "restarts": 1, "until": 9, "refusal": "pod worker-0 could not be started: no disk"},
     "Restart delay until 1970-01-01 00:00:09 UTC, after pod worker-0 could not be started: no disk."),
    ({"why": "its previous pods have not stopped", "until": None},
     "Cannot start yet: its previous pods have not stopped."),
])  # fmt: skip
def test_pending_reason_states_the_cause_of_the_backoff(numbers: dict[str, Any], message: str) -> None:
    assert blocker(Reason.BACKOFF, numbers).message == message


def test_booting_node_reservation_message_mentions_no_victims() -> None:
    message = blocker(Reason.WAITING_FOR_SCALE_UP, {"pods": 4, "nodes": 2, "booting": 2}).message
    assert message == "Capacity is reserved on 2 booting nodes."


def test_amounts_in_messages_include_their_units() -> None:
    assert [format_amount("gpu", milli) for milli in (0, 500, 1000, 2000, None)] == [
        "no GPU", "0.5 GPUs", "1 GPU", "2 GPUs", "any number of GPUs",
    ]  # fmt: skip
    assert [format_amount("memory_mib", mib) for mib in (0, 1, 4096, 4097, 6656)] == [
        "no memory", "1 MiB of memory", "4 GiB of memory", "4,097 MiB of memory", "6.5 GiB of memory",
    ]  # fmt: skip
    assert format_amount("memory_mib", None) == "any amount of memory"
    assert format_count(1, "entry", "entries") == "1 entry"
    assert format_count(2, "entry", "entries") == "2 entries"
    assert [format_number(number) for number in (8.0, 0.5, 1.2346)] == ["8", "0.5", "1.235"]
    assert [format_number(number) for number in (999, 12_345, 1234.5)] == ["999", "12,345", "1,234.5"]
    assert format_count(12_345, "task") == "12,345 tasks"


def test_fragmented_resource_without_a_free_block_is_reported_as_used_up() -> None:
    numbers: dict[str, Any] = {"resource": "memory_mib", "requested": 4096, "free": 0, "biggest_block": 0}
    message = blocker(Reason.FRAGMENTED, {**numbers, "beside": "GPUs and CPUs"}).message
    assert message == (
        "Enough is free, but on different nodes: 4 GiB of memory requested, and the nodes that have the "
        "required GPUs and CPUs free have none left."
    )
    assert "on one node" not in message
