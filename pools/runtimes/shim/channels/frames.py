"""Encode and decode the frames of a channel.

A frame has a kind (one byte), the length of its payload (four bytes, big-endian) and the payload. The kinds 0
to 4 are those of the Kubernetes exec protocol. At most WINDOW bytes may be unacknowledged in each direction.
"""

from __future__ import annotations

INPUT, OUTPUT, ERRORS, STATUS, RESIZE = 0, 1, 2, 3, 4
START = 5  # the client's first frame, with the request as JSON
CREDIT = 6  # number of processed bytes, as a big-endian 32-bit integer
END = 7  # end of the input, or of the output stream that the payload names
SIGNAL = 8  # name of a signal for the command, such as TERM
FROM_CLIENT = frozenset({INPUT, RESIZE, START, CREDIT, END, SIGNAL})
FROM_POD = frozenset({OUTPUT, ERRORS, STATUS, CREDIT, END})

WINDOW = 256 * 1024
CHUNK = 32 * 1024  # maximum bytes of input or output in one frame
PAYLOAD_MAX = 128 * 1024  # fits any command argument, which Linux limits to 128 KiB
HEAD = 5


class BrokenFrames(Exception):
    """Raised if the peer violates the protocol."""


def encode_frame(kind: int, payload: bytes = b"") -> bytes:
    return bytes((kind,)) + len(payload).to_bytes(4, "big") + payload


def encode_credit(count: int) -> bytes:
    return encode_frame(CREDIT, count.to_bytes(4, "big"))


def decode_credit(payload: bytes) -> int:
    return int.from_bytes(payload, "big")


class FrameReader:
    """Parser that splits received bytes into frames. Only frames of the `accepted` kinds are valid."""

    def __init__(self, accepted: frozenset[int]) -> None:
        self._accepted = accepted
        self._received = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Add received bytes, and return the frames that are now complete. Raises BrokenFrames."""
        self._received += data
        frames = []
        while len(self._received) >= HEAD:
            kind, length = self._received[0], int.from_bytes(self._received[1:HEAD], "big")
            if kind not in self._accepted or length > PAYLOAD_MAX:
                raise BrokenFrames(f"invalid frame of kind {kind} and {length} bytes")
            if len(self._received) < HEAD + length:
                break
            frames.append((kind, bytes(self._received[HEAD : HEAD + length])))
            del self._received[: HEAD + length]
        return frames
