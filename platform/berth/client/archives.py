"""Unpack tar archives of outputs."""

import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from berth.client.errors import ClientError
from berth.core.spec.sections.code import path_problem

BLOCK = 2**20


def unpack(archive: IO[bytes], directory: Path) -> Sequence[str]:
    """Extract an archive's files, overwriting existing files, and return their paths.

    Raises ClientError for an entry that is not a file or that would be outside the directory.
    """
    written = []
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is None or path_problem(member.name):
                raise ClientError(
                    f"The archive contains the invalid entry {member.name!r}. "
                    "Only files with relative paths are allowed."
                )
            target = directory / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                while block := content.read(BLOCK):
                    file.write(block)
            if member.mode & 0o100:
                target.chmod(target.stat().st_mode | 0o111)
            written.append(member.name)
    return written
