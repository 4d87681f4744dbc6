"""Tests for the spelling suggestions in error messages."""

import difflib
from typing import Any

import pytest

from berth.core.problems import COMPARED_MAX, closest_match


def test_nearest_of_many_names_is_found_with_few_comparisons(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def count(word: str, words: list[str], **options: Any) -> list[str]:
        compared.append(len(words))
        return get_close_matches(word, words, **options)

    get_close_matches = difflib.get_close_matches
    monkeypatch.setattr(difflib, "get_close_matches", count)
    names = [f"{'a' * 50}-{number}" for number in range(20_000)]
    assert closest_match("train-visoin", [*names, "train-vision"]) == "train-vision"
    assert closest_match("a" * 60, names).startswith("aaaa")
    assert compared == [COMPARED_MAX, COMPARED_MAX]


def test_name_with_a_different_first_letter_is_suggested_if_there_are_few_names() -> None:
    assert closest_match("vision", ["speech", "fision"]) == "fision"
    assert closest_match("vision", ["speech", "ads"]) == ""
