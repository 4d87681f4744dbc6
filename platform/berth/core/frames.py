"""Frame JSON and binary parts in one message, leaving the binary parts untouched."""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CONTENT_TYPE = "application/octet-stream"
WORDS_MAX = 1 << 20  # maximum header size in bytes
_LENGTH = struct.Struct(">I")

Frame = tuple[Mapping[str, Any], bytes]


def packed(frames: Iterable[Frame]) -> bytes:
    """Return the frames as one message.

    The message consists of four bytes with the header length, the header (a JSON list with the JSON part and
    the binary size of each frame), and the binary parts.
    """
    parts = list(frames)
    words = json.dumps([[dict(header), len(data)] for header, data in parts], separators=(",", ":")).encode()
    return b"".join([_LENGTH.pack(len(words)), words, *(data for _, data in parts)])


def unpacked(message: bytes) -> list[Frame]:
    """Return the frames of a message. Raises ValueError if it is malformed."""
    if len(message) < _LENGTH.size:
        raise ValueError("the length of the header is missing")
    (length,) = _LENGTH.unpack_from(message)
    at = _LENGTH.size + length
    if length > WORDS_MAX or at > len(message):
        raise ValueError("the header is too long or incomplete")
    try:
        header = json.loads(message[_LENGTH.size : at])
    except (ValueError, RecursionError):
        raise ValueError("the header is not JSON") from None
    frames: list[Frame] = []
    for words, size in _entries(header):
        if size > len(message) - at:
            raise ValueError("a binary part is incomplete")
        frames.append((words, message[at : at + size]))
        at += size
    if at != len(message):
        raise ValueError("there are bytes after the last frame")
    return frames


def _entries(header: object) -> Iterator[tuple[dict[str, Any], int]]:
    for entry in header if isinstance(header, list) else [None]:
        words, size = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if not isinstance(words, dict) or type(size) is not int or size < 0:
            raise ValueError("an entry of the header is not an object and a size")
        yield words, size
