"""List and read the files in a workload's code directory."""

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from berth.core.frames import pack_frames
from berth.core.problems import Problem
from berth.core.spec import SpecError
from berth.core.spec.sections.code import CHUNK_BYTES, link_problem, path_problem

IGNORE_FILE = ".berthignore"
IGNORE_HINT = f"readable files, and links between them; list the others in {IGNORE_FILE}"
UPLOAD_BYTES, UPLOAD_CHUNKS = 8 * 2**20, 2000  # maximum number of bytes and chunks per request
PROBLEMS_SHOWN, LARGEST_SHOWN = 5, 5
NO_REPOSITORY = "not a git repository"


@dataclass(frozen=True)
class Checkout:
    """State of the Git checkout that contains the files.

    `dirty` is True if the files differ from the commit.
    """

    commit: str = ""
    branch: str = ""
    dirty: bool = False


@dataclass(frozen=True)
class LocalFile:
    """File in the directory. If `link` is set, the file is a symbolic link to that path."""

    path: str
    size: int = 0
    executable: bool = False
    link: str = ""


@dataclass(frozen=True)
class Chunk:
    digest: str
    path: str
    offset: int
    size: int


@dataclass
class CodeTree:
    """Files of a code directory.

    `entries` describes the files for the server, and `chunks` are the file contents.
    """

    root: Path
    checkout: Checkout
    entries: list[dict[str, Any]] = field(default_factory=list)
    chunks: dict[str, Chunk] = field(default_factory=dict)

    def section(self, tree: str) -> dict[str, Any]:
        """Return the `code` section of a document."""
        state = {"commit": self.checkout.commit, "branch": self.checkout.branch, "dirty": self.checkout.dirty}
        return {"tree": tree, **{name: value for name, value in state.items() if value}}

    def uploads(self, digests: Sequence[str]) -> Iterator[tuple[bytes, int]]:
        """Yield request bodies that contain the given chunks, each with the total size of its chunks.

        Raises SpecError if a file has changed since it was scanned.
        """
        frames: list[tuple[dict[str, Any], bytes]] = []
        size = 0
        for digest in digests:
            chunk = self.chunks[digest]
            if frames and (size + chunk.size > UPLOAD_BYTES or len(frames) == UPLOAD_CHUNKS):
                yield pack_frames(frames), size
                frames, size = [], 0
            frames.append(({"digest": digest}, self._read(chunk)))
            size += chunk.size
        if frames:
            yield pack_frames(frames), size

    def _read(self, chunk: Chunk) -> bytes:
        try:
            with _open(self.root / chunk.path) as file:
                file.seek(chunk.offset)
                content = file.read(chunk.size)
        except OSError:
            content = b""
        if hashlib.sha256(content).hexdigest() != chunk.digest:
            raise _error(
                "changed while it was being sent. Submit again once no program is writing to it", chunk.path
            )
        return content


def scan(directory: str | Path, *, size_max: int, files_max: int) -> CodeTree:
    """List the directory's files that Git or .berthignore does not exclude.

    Raises SpecError if a file cannot be sent.
    """
    root = _resolve_root(Path(directory))
    tracked, checkout = _inspect_checkout(root)
    paths = _walk(root) if tracked is None else tracked
    files = sorted(_inspect_files(root, _without_ignored_files(root, paths)), key=lambda file: file.path)
    _check_size(files, size_max, files_max)
    tree = CodeTree(root, checkout)
    for file in files:
        tree.entries.append(_add_file(tree, file))
    return tree


def _resolve_root(directory: Path) -> Path:
    root = directory.expanduser().resolve()
    if not root.is_dir():
        raise _error("is not a directory", str(directory), "a directory")
    home = Path.home().resolve()
    if root == home or root in home.parents:
        raise _error("is your home directory or contains it", str(directory), "the directory of one project")
    return root


def _inspect_checkout(root: Path) -> tuple[list[str] | None, Checkout]:
    """Return the files that Git does not ignore, and the state of the checkout.

    Outside a checkout, the files are None.
    """
    try:
        toplevel = _run_git(root, "rev-parse", "--show-toplevel")
    except FileNotFoundError:  # Git is not installed
        return None, Checkout()
    if toplevel.returncode:
        message = os.fsdecode(toplevel.stderr).strip()
        if NO_REPOSITORY in message:
            return None, Checkout()
        raise _error(f"cannot be read by git: {message}", str(root), "a working checkout")
    commit = _run_git(root, "rev-parse", "--verify", "--quiet", "HEAD").stdout.decode().strip()
    branch = (
        _run_git(root, "symbolic-ref", "--short", "--quiet", "HEAD").stdout.decode(errors="replace").strip()
    )
    changes = _run_git(root, "status", "--porcelain", "--", ".").stdout
    paths = _git_files(root)
    return paths, Checkout(commit, branch[:255], bool(changes) and bool(commit))


def _git_files(root: Path) -> list[str]:
    """Return the files of a checkout, including its submodules and nested repositories."""
    listed = _run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed.returncode:
        raise _error(f"cannot be listed by git: {os.fsdecode(listed.stderr).strip()}", str(root))
    paths = {os.fsdecode(name).rstrip("/") for name in listed.stdout.split(b"\0") if name}
    nested = [path for path in paths if (root / path).is_dir() and not (root / path).is_symlink()]
    for path in nested:
        paths.remove(path)
        if (root / path / ".git").exists():
            paths.update(f"{path}/{inner}" for inner in _git_files(root / path))
    return list(paths)


def _run_git(root: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, env={**os.environ, "LC_ALL": "C"}, check=False)


def _walk(root: Path) -> Iterator[str]:
    """Yield the files of a directory without Git, except those excluded by .gitignore files."""
    specs: dict[str, Any] = {}  # patterns of each directory's .gitignore
    for directory, names, files in os.walk(root):
        inside = Path(directory).relative_to(root).as_posix()
        prefix = "" if inside == "." else f"{inside}/"
        if ".gitignore" in files:
            specs[prefix] = _ignore_spec(root / f"{prefix}.gitignore")
        links = [name for name in names if (Path(directory) / name).is_symlink()]
        names[:] = [
            name for name in sorted(names)
            if name != ".git" and name not in links and not _is_ignored(specs, f"{prefix}{name}/")
        ]  # fmt: skip
        paths = (prefix + name for name in (*files, *links))
        yield from (path for path in paths if not _is_ignored(specs, path))


def _is_ignored(specs: Mapping[str, Any], path: str) -> bool:
    """Return whether the path is ignored. The deepest .gitignore with a matching pattern decides."""
    at = path.rstrip("/").rfind("/") + 1
    while True:
        prefix = path[:at]
        included = specs[prefix].check_file(path[at:]).include if prefix in specs else None
        if included is not None or not at:
            return bool(included)
        at = path.rfind("/", 0, at - 1) + 1


def _without_ignored_files(root: Path, paths: Iterable[str]) -> Iterator[str]:
    ignored = _ignore_spec(root / IGNORE_FILE)
    return (path for path in paths if not ignored.match_file(path))


def _ignore_spec(file: Path) -> Any:
    import pathspec  # imported on demand, because only code uploads need this module

    try:
        lines = file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, UnicodeDecodeError) as error:
        raise _error(f"cannot be read: {error}", file.name, "a text file with patterns") from None
    return pathspec.GitIgnoreSpec.from_lines(lines)


def _inspect_files(root: Path, paths: Iterable[str]) -> list[LocalFile]:
    """Inspect the paths, and return the files and links.

    Raises SpecError with the first paths that cannot be sent.
    """
    files: list[LocalFile] = []
    problems: list[Problem] = []
    for path in paths:
        file, reason = _inspect_file(root, path)
        if reason:
            problems.append(_path_problem(reason, path))
        elif file is not None:
            files.append(file)
    if problems:
        raise SpecError(sorted(problems, key=lambda problem: problem.received)[:PROBLEMS_SHOWN])
    if not files:
        raise _error("contains no files to send", str(root), "a directory with files")
    return files


def _inspect_file(root: Path, path: str) -> tuple[LocalFile | None, str]:
    """Return the file and the reason why it cannot be sent, or "" if it can be sent.

    For a deleted file that Git still lists, the file is None and the reason is empty.
    """
    if reason := path_problem(path):
        return None, reason
    try:
        status = (root / path).lstat()
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(root / path)  # noqa: PTH115 - may not be valid UTF-8
            return LocalFile(path, link=target), link_problem(path, target)
    except (FileNotFoundError, NotADirectoryError):
        return None, ""
    if not stat.S_ISREG(status.st_mode):
        return None, "is neither a file nor a directory nor a symbolic link"
    return LocalFile(path, status.st_size, executable=bool(status.st_mode & stat.S_IXUSR)), ""


def _check_size(files: Sequence[LocalFile], size_max: int, files_max: int) -> None:
    if len(files) > files_max:
        received = f"{len(files):,} files"
        raise _error(
            "contains too many files", received, f"at most {files_max:,}; exclude others in .berthignore"
        )
    size = sum(file.size for file in files)
    if size > size_max:
        largest = sorted(files, key=lambda file: file.size, reverse=True)[:LARGEST_SHOWN]
        names = ", ".join(f"{file.path} ({format_size(file.size)})" for file in largest)
        allowed = (
            f"at most {format_size(size_max)}; list files to leave out in {IGNORE_FILE}. Largest: {names}"
        )
        raise _error("is too large", format_size(size), allowed)


def _add_file(tree: CodeTree, file: LocalFile) -> dict[str, Any]:
    if file.link:
        return {"path": file.path, "link": file.link}
    digests: list[str] = []
    size = 0
    try:
        with _open(tree.root / file.path) as content:
            while size < file.size and (data := content.read(min(CHUNK_BYTES, file.size - size))):
                digest = hashlib.sha256(data).hexdigest()
                digests.append(digest)
                tree.chunks.setdefault(digest, Chunk(digest, file.path, size, len(data)))
                size += len(data)
    except OSError as error:
        raise _error(f"cannot be read: {error.strerror}", file.path, IGNORE_HINT) from None
    if size != file.size:
        raise _error(
            "changed while it was being read. Submit again once no program is writing to it", file.path
        )
    executable = {"executable": True} if file.executable else {}
    return {"path": file.path, "size": size, "chunks": digests, **executable}


def _open(path: Path) -> Any:
    """Open a regular file, without following a link or blocking on a pipe."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, os.O_RDONLY | flags), "rb")


def format_size(size: int) -> str:
    """Return a size as text, such as "312 bytes", "1.2 KiB" or "2048.0 MiB"."""
    if size < 2**10:
        return f"{size} byte{'s' * (size != 1)}"
    return f"{size / 2**10:.1f} KiB" if size < 2**20 else f"{size / 2**20:.1f} MiB"


def _path_problem(reason: str, path: str, allowed: str = IGNORE_HINT) -> Problem:
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return Problem("code", reason, shown, allowed)


def _error(reason: str, received: str, allowed: str = "") -> SpecError:
    return SpecError([_path_problem(reason, received, allowed)])
