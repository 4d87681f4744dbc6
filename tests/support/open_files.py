"""List the open files of a process, as Linux shows them in /proc."""

import contextlib
from pathlib import Path


def open_files(pid: int) -> list[str]:
    """Return the target of each file descriptor of the process, such as a path or `socket:[INODE]`.

    Files that the process closes in the meantime may be missing. Raises OSError if there is no such process.
    """
    names = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(str(descriptor.readlink()))
    return names
