"""Tests for binary frames: round trips and rejection of invalid data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.frames import pack_frames, unpack_frames

TEXT = st.text(max_size=8)
WORDS = st.dictionaries(TEXT, st.one_of(st.integers(), TEXT, st.none()), max_size=4)
FRAMES = st.lists(st.tuples(WORDS, st.binary(max_size=200)), max_size=5)


@given(FRAMES)
def test_packed_frame_is_unpacked_unchanged(frames: list[tuple[dict[str, object], bytes]]) -> None:
    assert unpack_frames(pack_frames(frames)) == frames


@given(st.binary(max_size=300))
def test_random_bytes_are_rejected_or_repacked_unchanged(message: bytes) -> None:
    try:
        frames = unpack_frames(message)
    except ValueError:
        return
    assert unpack_frames(pack_frames(frames)) == frames


@given(FRAMES.filter(len), st.integers(min_value=1, max_value=40))
def test_truncated_frame_is_rejected(frames: list[tuple[dict[str, object], bytes]], cut: int) -> None:
    message = pack_frames(frames)
    with pytest.raises(ValueError, match=r"\w"):
        unpack_frames(message[: max(0, len(message) - cut)])


INVALID_FRAMES = [
    b"{}",
    b"[1]",
    b"[[{},-1]]",
    b'[[{},"2"]]',
    b"[[{},true]]",
    b"[[[],1]]",
    b"\xff",
    b"[" * 100_000,
]


@pytest.mark.parametrize("words", INVALID_FRAMES)
def test_plain_text_is_rejected_as_a_frame(words: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        unpack_frames(len(words).to_bytes(4) + words + b"x")
