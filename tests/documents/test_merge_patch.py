"""Tests for merge patches of documents and for the differences between documents."""

from hypothesis import given
from hypothesis import strategies as st

from berth.core.merge_patch import apply_patch, differences, find_patch, format_difference
from berth.core.problems import join_path

SCALARS = st.booleans() | st.integers(0, 3) | st.text("ab", max_size=2)
DOCUMENTS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), SCALARS | st.lists(SCALARS, max_size=2), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), SCALARS | inner, max_size=3),
    max_leaves=8,
)


def without_empty_values(value: object) -> object:
    """Return the value without empty mappings, which a merge patch cannot distinguish from missing keys."""
    if not isinstance(value, dict):
        return value
    return {key: inner for key, each in value.items() if (inner := without_empty_values(each)) != {}}


@given(DOCUMENTS, DOCUMENTS)
def test_merge_patch_turns_one_document_into_another(
    before: dict[str, object], after: dict[str, object]
) -> None:
    patch = find_patch(before, after)
    assert without_empty_values(apply_patch(before, patch)) == without_empty_values(after)
    assert find_patch(after, after) == {}
    assert bool(list(differences(before, after))) == (before != after)


def test_document_differences_state_the_path_of_each_value() -> None:
    before = {"roles": [{"gpu": 1, "cpu": 2}], "labels": {"team": "a"}, "pools": ["x"]}
    after = {"roles": [{"gpu": 2, "cpu": 2}], "pools": ["x", "y"], "command": "a\nb"}
    assert [format_difference(join_path(path), *values) for path, *values in differences(before, after)] == [
        'command: not set -> "a\\nb"',
        'labels: {"team": "a"} -> not set',
        "pools: x -> x, y",
        "roles[0].gpu: 1 -> 2",
    ]
