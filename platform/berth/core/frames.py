"""Pack JSON objects and binary data into one message without encoding the binary data."""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CONTENT_TYPE = "application/octet-stream"
HEADER_MAX = 1 << 20  # maximum header size in bytes
_LENGTH = struct.Struct(">I")

Frame = tuple[Mapping[str, Any], bytes]


def pack_frames(frames: Iterable[Frame]) -> bytes:
    """Pack the frames into one message.

    The message consists of the header length in four bytes, the header and the binary parts. The header is a
    JSON list with the object and binary size of each frame.
    """
    parts = list(frames)
    metadata = json.dumps(
        [[dict(header), len(data)] for header, data in parts], separators=(",", ":")
    ).encode()
    return b"".join([_LENGTH.pack(len(metadata)), metadata, *(data for _, data in parts)])


def unpack_frames(message: bytes) -> list[Frame]:
    """Return the frames of a message. Raises ValueError if the message is malformed."""
    if len(message) < _LENGTH.size:
        raise ValueError("the header length is missing")
    (length,) = _LENGTH.unpack_from(message)
    at = _LENGTH.size + length
    if length > HEADER_MAX or at > len(message):
        raise ValueError("the header is too long or incomplete")
    try:
        header = json.loads(message[_LENGTH.size : at])
    except (ValueError, RecursionError):
        raise ValueError("the header is not JSON") from None
    frames: list[Frame] = []
    for metadata, size in _entries(header):
        if size > len(message) - at:
            raise ValueError("a binary part is incomplete")
        frames.append((metadata, message[at : at + size]))
        at += size
    if at != len(message):
        raise ValueError("unexpected bytes after the last frame")
    return frames


def _entries(header: object) -> Iterator[tuple[dict[str, Any], int]]:
    for entry in header if isinstance(header, list) else [None]:
        metadata, size = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if not isinstance(metadata, dict) or type(size) is not int or size < 0:
            raise ValueError("a header entry is not an [object, size] pair")
        yield metadata, size
