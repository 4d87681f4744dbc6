"""Frame JSON and binary parts in one message, leaving the binary parts untouched."""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CONTENT_TYPE = "application/octet-stream"
WORDS_MAX = 1 << 20  # of the words of all frames together
_LENGTH = struct.Struct(">I")

Frame = tuple[Mapping[str, Any], bytes]


def packed(frames: Iterable[Frame]) -> bytes:
    """Four bytes of length, so many bytes of JSON (a list: words and size of each frame), the bytes."""
    taken = list(frames)
    words = json.dumps([[dict(said), len(data)] for said, data in taken], separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(words)), words, *(data for _, data in taken)])


def unpacked(message: bytes) -> list[Frame]:
    """Raises ValueError for what `packed` would not have made."""
    if len(message) < _LENGTH.size:
        raise ValueError("it is shorter than its own length")
    (length,) = _LENGTH.unpack_from(message)
    at = _LENGTH.size + length
    if length > WORDS_MAX or at > len(message):
        raise ValueError("its words are longer than it says or may be")
    try:
        told = json.loads(message[_LENGTH.size : at])
    except (ValueError, RecursionError):
        raise ValueError("its words are not JSON") from None
    frames: list[Frame] = []
    for said, size in _entries(told):
        if size > len(message) - at:
            raise ValueError("bytes are missing")
        frames.append((said, message[at : at + size]))
        at += size
    if at != len(message):
        raise ValueError("there are bytes that nobody named")
    return frames


def _entries(told: object) -> Iterator[tuple[dict[str, Any], int]]:
    for entry in told if isinstance(told, list) else [None]:
        said, size = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if not isinstance(said, dict) or type(size) is not int or size < 0:
            raise ValueError("a frame is not words and a size")
        yield said, size
