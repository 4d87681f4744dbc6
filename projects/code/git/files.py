"""List the files of a fetched tree, and read their contents in chunks."""

import hashlib
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO

from berth.core.spec.sections.code import CHUNK_BYTES, PATH_MAX, link_problem, path_problem
from projects.code.base import CodeFile
from projects.code.git.errors import GitFailure, GitRejection
from projects.code.git.policy import GitPolicy
from projects.code.git.program import GitProgram

BATCH_BYTES = 16 * 2**20  # maximum size of contents that are stored together
LINK, SUBMODULE, EXECUTABLE = "120000", "160000", "100755"
READ_BYTES = 64 * 1024
MIB = 2**20
RECORD_MAX = PATH_MAX * 4 + 200  # maximum bytes per listed entry: mode, ID, size and UTF-8 path
SHOWN = 200  # maximum length of a path in messages


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """Git tree entry whose content has not been read yet."""

    object_id: str
    mode: str
    file: CodeFile


@dataclass(frozen=True, slots=True)
class FileListing:
    entries: tuple[TreeEntry, ...]
    submodules: int


def list_files(git: GitProgram, tree: str, policy: GitPolicy) -> FileListing:
    """List the files of a tree.

    Raises GitRejection if there are too many files, or if a file is too large or unsafe.
    """
    entries: list[TreeEntry] = []
    submodules, size = 0, 0
    for record in _tree_records(git, tree):
        fields, _, raw_path = record.partition(b"\t")
        mode, _, object_id, size_text = fields.decode().split()
        path = raw_path.decode(errors="surrogateescape")
        if problem := path_problem(path):
            raise GitRejection(f"The path {path[:SHOWN]!a} {problem}, so the commit cannot be used.")
        if len(entries) + submodules >= policy.files:
            raise GitRejection(
                f"The commit has more than {policy.files:,} files, the limit set by BERTH_CODE_FILES. "
                "Set `directory` to one of its directories."
            )
        if mode == SUBMODULE:
            submodules += 1
            continue
        file_size = int(size_text)
        size += file_size
        if mode == LINK and file_size > PATH_MAX:
            raise GitRejection(
                f"The file {path[:SHOWN]!a} is a symbolic link with an invalid target. Correct the link."
            )
        entries.append(TreeEntry(object_id, mode, CodeFile(path, file_size, executable=mode == EXECUTABLE)))
        if size > policy.size:
            raise GitRejection(
                f"The commit's files exceed {policy.size // MIB} MiB, the limit set by BERTH_CODE_MIB. Set "
                "`directory` to a subdirectory."
            )
    if not entries:
        raise GitRejection("The commit contains no files in this directory. Set `directory` to another one.")
    return FileListing(tuple(entries), submodules)


def _tree_records(git: GitProgram, tree: str) -> Iterator[bytes]:
    arguments = ["--git-dir", str(git.repository), "ls-tree", "-r", "-z", "-l", "--full-tree", tree]
    process = git.start(arguments, subprocess.PIPE, subprocess.DEVNULL)
    assert process.stdout is not None
    rest = b""
    try:
        while part := process.stdout.read(READ_BYTES):
            git.raise_if_out_of_time()
            *records, rest = (rest + part).split(b"\0")
            yield from records
            if len(rest) > RECORD_MAX:
                raise GitRejection(
                    f"The commit has a path with more than {PATH_MAX:,} characters. Shorten it."
                )
        if process.wait() or rest:
            raise GitRejection("The commit is corrupt: its files cannot be listed.")
    finally:
        process.stdout.close()
        git.kill(process)


@dataclass(slots=True)
class _ObjectBatch:
    store: Callable[[Mapping[str, bytes]], None]
    chunks: dict[str, bytes] = field(default_factory=dict)
    size: int = 0

    def add(self, content: bytes) -> str:
        """Add a chunk, and return its digest."""
        digest = hashlib.sha256(content).hexdigest()
        self.chunks[digest] = content
        self.size += len(content)
        if self.size >= BATCH_BYTES:
            self.flush()
        return digest

    def flush(self) -> None:
        if self.chunks:
            self.store(self.chunks)
        self.chunks, self.size = {}, 0


def store_files(
    git: GitProgram, entries: Sequence[TreeEntry], store: Callable[[Mapping[str, bytes]], None]
) -> tuple[CodeFile, ...]:
    """Read the files, and pass their chunks to `store`, keyed by digest.

    Return the files with their digests. Raises GitRejection if a symbolic link leads out of the tree.
    """
    arguments = ["--git-dir", str(git.repository), "cat-file", "--batch"]
    process = git.start(arguments, subprocess.PIPE, subprocess.DEVNULL, subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    files: list[CodeFile] = []
    batch = _ObjectBatch(store)
    try:
        for entry in entries:
            git.raise_if_out_of_time()
            process.stdin.write(f"{entry.object_id}\n".encode())
            process.stdin.flush()
            parts = _read_object(process.stdout, entry.file.size)
            if entry.mode == LINK:
                files.append(_read_link(entry, b"".join(parts)))
            else:
                files.append(replace(entry.file, chunks=tuple(batch.add(content) for content in parts)))
            process.stdout.read(1)  # skip the line break after the content
        batch.flush()
    except (BrokenPipeError, EOFError):
        raise GitFailure("The fetched objects could not be read.") from None
    finally:
        process.stdout.close()
        git.kill(process)
    return tuple(files)


def _read_object(output: IO[bytes], size: int) -> Iterator[bytes]:
    """Yield an object of `size` bytes from git's output in parts."""
    header = output.readline().split()
    if len(header) != 3 or int(header[2]) != size:
        raise EOFError
    while size:
        content = output.read(min(size, CHUNK_BYTES))
        if not content:
            raise EOFError
        size -= len(content)
        yield content


def _read_link(entry: TreeEntry, content: bytes) -> CodeFile:
    target = content.decode(errors="surrogateescape")
    if problem := link_problem(entry.file.path, target):
        raise GitRejection(f"The file {entry.file.path} {problem}.")
    return CodeFile(entry.file.path, link=target)
