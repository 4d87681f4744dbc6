"""Binary frames travel unchanged, and nothing else is taken for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.frames import packed, unpacked

TEXT = st.text(max_size=8)
WORDS = st.dictionaries(TEXT, st.one_of(st.integers(), TEXT, st.none()), max_size=4)
FRAMES = st.lists(st.tuples(WORDS, st.binary(max_size=200)), max_size=5)


@given(FRAMES)
def test_what_was_packed_is_unpacked(frames: list[tuple[dict[str, object], bytes]]) -> None:
    assert unpacked(packed(frames)) == frames


@given(st.binary(max_size=300))
def test_anything_else_is_refused_or_would_be_packed_again_to_the_same(message: bytes) -> None:
    try:
        frames = unpacked(message)
    except ValueError:
        return
    assert unpacked(packed(frames)) == frames


@given(FRAMES.filter(len), st.integers(min_value=1, max_value=40))
def test_a_message_cut_short_is_refused(frames: list[tuple[dict[str, object], bytes]], cut: int) -> None:
    message = packed(frames)
    with pytest.raises(ValueError, match=r"\w"):
        unpacked(message[: max(0, len(message) - cut)])


NO_FRAMES = [b"{}", b"[1]", b"[[{},-1]]", b'[[{},"2"]]', b"[[{},true]]", b"[[[],1]]", b"\xff", b"[" * 100_000]


@pytest.mark.parametrize("words", NO_FRAMES)
def test_words_that_are_no_frames_are_refused(words: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        unpacked(len(words).to_bytes(4) + words + b"x")
