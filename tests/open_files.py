"""Open files of a process, as Linux lists them in /proc."""

import contextlib
from pathlib import Path


def open_files(pid: int) -> list[str]:
    """Return what each file descriptor of the process refers to, such as a path or `socket:[INODE]`.

    Files that the process closes meanwhile may be missing. Raises OSError if there is no such process.
    """
    names = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(str(descriptor.readlink()))
    return names
