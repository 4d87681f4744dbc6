"""List an S3 volume's objects, and check that they can become files."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False  # avoids importing `collections.abc`, which takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Iterable

FILES_MAX = 100_000
NAME_BYTES_MAX = 255
GIB = 2**30
_SHOWN_MAX = 80


class UnusableListing(ValueError):
    """Raised if the objects cannot become a volume's files. The message is a clause that says why."""


@dataclass(frozen=True)
class Object:
    """S3 object. `path` is relative to the volume's prefix, `size` is in bytes, `modified` is a Unix time."""

    path: str
    size: int
    etag: str
    modified: float


class Listing:
    """Objects of one volume, added in the order of the S3 listing. `size_max` is in bytes.

    A volume that is too large is rejected early.
    """

    def __init__(self, size_max: int, *, may_be_empty: bool = False) -> None:
        self._size_max, self._may_be_empty = size_max, may_be_empty
        self.objects: list[Object] = []
        self.size = 0

    def add(self, objects: Iterable[Object]) -> None:
        for entry in objects:
            is_marker = entry.path == "" or (entry.path.endswith("/") and not entry.size)
            if is_marker:  # tools create such objects to represent empty folders
                _check_path(entry.path.rstrip("/"))
                continue
            _check_path(entry.path)
            self.objects.append(entry)
            self.size += entry.size
            if len(self.objects) > FILES_MAX:
                raise UnusableListing(
                    f"the volume has more than {FILES_MAX:,} objects. Use a narrower prefix"
                )
            if self.size > self._size_max:
                raise UnusableListing(
                    f"the objects exceed the volume's limit of {self._size_max / GIB:g} GiB. Raise the "
                    "volume's max_gib, or use a narrower prefix"
                )

    def check(self) -> None:
        """Raise UnusableListing if a read-only volume is empty, an object is listed twice, or an object would
        be both a file and a directory.

        An empty read-only volume is probably a misspelled prefix.
        """
        if not self.objects and not self._may_be_empty:
            raise UnusableListing("the volume has no objects. Ask an admin to check its source")
        files = {entry.path for entry in self.objects}
        if len(files) < len(self.objects):
            raise UnusableListing("the object store listed an object twice")
        for path in files:
            parent = path.rpartition("/")[0]
            while parent:
                if parent in files:
                    raise UnusableListing(
                        f"{_quote(parent)} is both an object and the folder that contains {_quote(path)}. "
                        "Rename one of them"
                    )
                parent = parent.rpartition("/")[0]


def _check_path(path: str) -> None:
    if path and (reason := path_problem(path)):
        raise UnusableListing(f"the object {_quote(path)} cannot be a file: {reason}. Rename the object")


def path_problem(path: str) -> str:
    """Return a clause that says why a file cannot have the path, or an empty string if it can."""
    try:
        names = [name.encode() for name in path.split("/")]
    except UnicodeEncodeError:
        return "its name is not valid Unicode"
    if any(name in (b".", b"..") for name in names):
        return "its name contains `.` or `..` between slashes"
    if b"" in names:
        return "its name starts or ends with /, or contains //"
    if any(byte < 32 or byte == 127 for name in names for byte in name):
        return "its name contains a control character"
    if any(len(name) > NAME_BYTES_MAX for name in names):
        return f"a part of its name is longer than {NAME_BYTES_MAX} bytes"
    return ""


def _quote(path: str) -> str:
    text = path if len(path) <= _SHOWN_MAX else f"{path[:_SHOWN_MAX]}..."
    return ascii(text)
