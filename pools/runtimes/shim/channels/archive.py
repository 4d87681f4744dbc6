"""Code shared by sender and receiver when files are copied to or from pods.

Archives are streamed: neither side holds more than a block of a file in memory.
"""

from __future__ import annotations

import tarfile

BLOCK = 256 * 1024
RECORD = tarfile.BLOCKSIZE
CONTENTS = "."  # source name for copying a directory's contents instead of the directory itself
NANOSECONDS = 1_000_000_000


class CopyError(Exception):
    """Raised if files cannot be copied. The message contains the path."""


def base_name(source: str) -> str:
    """Return the last component of the source path, or CONTENTS if the path does not end with a name."""
    name = source.rstrip("/").rpartition("/")[2]
    return CONTENTS if name in ("", "..") else name


def describe(path: str, error: OSError) -> str:
    return f"{path}: {error.strerror or error}"


def stays_inside(link: str, depth: int) -> bool:
    """Return whether a symbolic link stays inside the copied directory.

    `depth` is the depth of the directory that contains the link. ".." is allowed only at the beginning. After
    another link, it could lead anywhere.
    """
    parts = [part for part in link.split("/") if part not in ("", ".")]
    climbs = 0
    while climbs < len(parts) and parts[climbs] == "..":
        climbs += 1
    return bool(link) and not link.startswith("/") and climbs <= depth and ".." not in parts[climbs:]
