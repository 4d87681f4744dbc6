"""Tests for the text of numbers in pending reasons."""

from berth.core.wording.blocker_numbers import format_numbers


def test_amounts_have_the_unit_of_their_resource() -> None:
    assert format_numbers({"resource": "cpu", "requested": 2500, "free": 0, "by_runtime": 1000}) == [
        ("requested", "2.5 CPUs"),
        ("free", "0"),
        ("within their minimum runtime", "1 CPU"),
    ]


def test_memory_is_printed_in_mib() -> None:
    assert format_numbers({"resource": "memory_mib", "missing": 300}) == [("missing", "300 MiB of memory")]


def test_counts_are_plain_numbers() -> None:
    assert format_numbers({"held_nodes": 2, "attempts": 64}) == [
        ("nodes held", "2"),
        ("attempts", "64"),
    ]


def test_unlimited_quota_is_printed_as_unlimited() -> None:
    assert format_numbers({"quota": None}) == [("quota", "unlimited")]


def test_missing_values_are_omitted() -> None:
    assert format_numbers({"beside": None, "attempts": 0}) == [("attempts", "0")]


def test_protected_amounts_of_zero_are_omitted() -> None:
    numbers = {"resource": "gpu", "reclaimable": 0, "protected": 0, "by_runtime": 0, "non_preemptible": 0}
    assert format_numbers(numbers) == [("reclaimable", "0")]


def test_values_in_the_message_are_not_repeated() -> None:
    assert format_numbers({"action": "reclaimed", "takes_turns": False, "resource": "gpu", "until": 3}) == []
    assert format_numbers({"code": "Fetching code from git.example.org.", "why": "no pool fits"}) == []
