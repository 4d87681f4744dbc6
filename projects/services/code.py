"""Store code that is submitted with workloads.

A tree lists the chunks of its files. Clients send the tree first, then the chunks that the project lacks. No
stored code is shared between projects.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import F, Func, IntegerField, Sum
from django.utils import timezone

from berth.core.errors import Conflict, Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec.sections.code import CHUNK_BYTES, link_problem, nesting_problem, path_problem
from projects.access import Action, require
from projects.actor import Actor
from projects.code.archive import archive_size, check_chunks, file_parts, tar_parts
from projects.code.base import CodeFile, DamagedChunk, MissingChunk
from projects.code.stores import open_store
from projects.models import CodeChunk, CodeFetch, CodeTree, Project, Workload

MIB = 2**20
LARGEST_SHOWN = 5
TOUCH_AFTER = timedelta(hours=1)  # minimum interval between updates of `used_at`
IGNORE_HINT = "list files that pods do not need in .berthignore"


@dataclass(frozen=True, slots=True)
class CodeLimits:
    """Limits on a project's code. All except `files` are in bytes."""

    size: int
    files: int
    project_size: int


@dataclass(frozen=True, slots=True)
class WorkloadGit:
    """Git repository with a workload's code.

    `state` is waiting, fetched or failed. `error` comes from the last attempt, and `retry_at` is the time of
    the next.
    """

    url: str
    ref: str | None
    directory: str | None
    secret: str | None
    secret_version: int | None
    state: str
    error: str
    retry_at: datetime | None
    fetched_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkloadCode:
    """Code of a workload.

    The size in bytes and the number of files are None once the code is no longer stored.
    """

    tree: str | None
    commit: str | None
    branch: str | None
    dirty: bool
    is_stored: bool
    size: int | None
    files: int | None
    git: WorkloadGit | None = None


@dataclass(frozen=True, slots=True)
class RegisteredTree:
    """Code tree that a client has registered. The tree is stored only if `missing` is empty."""

    digest: str
    size: int
    file_count: int
    missing: list[str]


def code_limits() -> CodeLimits:
    return CodeLimits(
        settings.BERTH_CODE_MIB * MIB, settings.BERTH_CODE_FILES, settings.BERTH_CODE_PROJECT_MIB * MIB
    )


def stored_size(project: Project) -> int:
    """Return the total size in bytes of the project's stored chunks and file lists."""
    chunks = CodeChunk.objects.filter(project=project).aggregate(total=Sum("size"))["total"] or 0
    # pg_column_size returns the compressed size.
    size = Func(F("files"), function="pg_column_size", output_field=IntegerField())
    lists = CodeTree.objects.filter(project=project).aggregate(total=Sum(size))["total"] or 0
    return int(chunks + lists)


def register_tree(
    *, actor: Actor, project: Project, files: Sequence[CodeFile], now: datetime | None = None
) -> RegisteredTree:
    """Store the tree if the project has all chunks of its files.

    Otherwise, return the missing chunks. Raises Forbidden, NotFound, Invalid for a bad path or a tree that is
    too large, and Conflict if the project exceeds its storage limit.
    """
    require(actor, Action.SUBMIT, project)
    at = now or timezone.now()
    files = sorted(files, key=lambda file: file.path)
    _check_files(files)
    size = sum(file.size for file in files)
    needed = list(dict.fromkeys(digest for file in files for digest in file.chunks))
    stored = _touch_chunks(project, needed, at)
    digest = _tree_digest(files)
    missing = [each for each in needed if each not in stored]
    if not missing:
        _check_chunk_sizes(files, stored)
        _store_tree(project, digest, files, needed, at)
    return RegisteredTree(digest, size, len(files), missing)


def store_chunks(
    *, actor: Actor, project: Project, chunks: Sequence[tuple[str, bytes]], now: datetime | None = None
) -> None:
    """Store chunks under their digests.

    Must not be called inside a transaction. Raises Forbidden, NotFound, StoreFailure, Invalid if a digest is
    wrong, and Conflict if the project exceeds its storage limit.
    """
    require(actor, Action.SUBMIT, project)
    _check_contents(chunks)
    write_chunks(project, dict(chunks), now or timezone.now())


def write_chunks(project: Project, contents: Mapping[str, bytes], at: datetime) -> None:
    """Store contents under their digests, which must be correct.

    Must not be called inside a transaction. Raises StoreFailure, and Conflict if the project exceeds its
    storage limit.
    """
    stored = _touch_chunks(project, contents, at)
    rows = [
        CodeChunk(project=project, digest=digest, size=len(content), used_at=at)
        for digest, content in contents.items()
        if digest not in stored
    ]
    if not rows:
        return
    _check_space(project, sum(row.size for row in rows))
    store = open_store()
    store.write({chunk_key(row): contents[row.digest] for row in rows})
    CodeChunk.objects.bulk_create(rows, ignore_conflicts=True)
    inserted = set(CodeChunk.objects.filter(key__in=[row.key for row in rows]).values_list("key", flat=True))
    # Delete the copies of chunks that another request has stored at the same time.
    store.delete([chunk_key(row) for row in rows if row.key not in inserted])


def write_tree(project: Project, files: Iterable[CodeFile], at: datetime) -> CodeTree | None:
    """Store a tree whose chunks are already stored, and return it.

    Return None if there are no files. Raises Conflict if the project exceeds its storage limit.
    """
    ordered = sorted(files, key=lambda file: file.path)
    if not ordered:
        return None
    chunks = list(dict.fromkeys(digest for file in ordered for digest in file.chunks))
    digest = _tree_digest(ordered)
    _store_tree(project, digest, ordered, chunks, at)
    return find_tree(project, digest)


def read_tree(tree: CodeTree, path: str = "") -> tuple[int, Iterator[bytes]]:
    """Return the size of the tree's tar archive, and an iterator over its parts.

    `path` selects the files at and below it. The iterator raises StoreFailure if a chunk is missing or
    damaged.
    """
    files = [file for file in tree.files if not path or f"{file['path']}/".startswith(f"{path}/")]
    mtime = int(tree.created_at.timestamp())
    return archive_size(files, mtime), tar_parts(open_store(), files, _chunk_keys(tree, files), mtime)


def read_file(tree: CodeTree, file: Mapping[str, Any]) -> Iterator[bytes]:
    """Return an iterator over the content of one file in the tree.

    It raises StoreFailure if a chunk is missing or damaged.
    """
    return file_parts(open_store(), file, _chunk_keys(tree, [file]))


def verify_tree(tree: CodeTree) -> None:
    """Verify all chunks of the tree.

    Raises Conflict if a chunk is missing or damaged, or StoreFailure if the store is unavailable.
    """
    try:
        check_chunks(open_store(), tree.files, _chunk_keys(tree, tree.files))
    except (MissingChunk, DamagedChunk) as failure:
        raise Conflict(str(failure)) from failure


def _chunk_keys(tree: CodeTree, files: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    digests = {digest for file in files for digest in file.get("chunks", ())}
    rows = CodeChunk.objects.filter(project=tree.project_id, digest__in=digests)
    return {row.digest: chunk_key(row) for row in rows}


def describe_code(workload: Workload) -> WorkloadCode | None:
    """Return the code that was submitted with the workload, or None if it has no code."""
    section = workload.spec.get("code") if isinstance(workload.spec, dict) else None
    if section is None:
        return None
    if "code" not in workload._state.fields_cache:  # avoid loading the list of files
        stored = CodeTree.objects.filter(pk=workload.code_id or 0)
        workload.code = stored.defer("files", "chunks").first()
    tree = workload.code
    if (git := section.get("git")) is not None:
        return _describe_git(workload, tree, git)
    return WorkloadCode(
        tree=section["tree"], commit=section.get("commit"), branch=section.get("branch"),
        dirty=section.get("dirty", False), is_stored=tree is not None,
        size=None if tree is None else tree.size,
        files=None if tree is None else tree.file_count,
    )  # fmt: skip


def _describe_git(workload: Workload, tree: CodeTree | None, section: Mapping[str, Any]) -> WorkloadCode:
    fetch = workload.code_fetch or CodeFetch(state=CodeFetch.State.FAILED)
    git = WorkloadGit(
        url=section["url"], ref=section.get("ref"), directory=section.get("directory"),
        secret=section.get("secret"), secret_version=fetch.secret_version, state=str(fetch.state),
        error=fetch.error, retry_at=fetch.retry_at,
        fetched_at=fetch.ended_at if fetch.state == CodeFetch.State.FETCHED else None,
    )  # fmt: skip
    return WorkloadCode(
        tree=None if tree is None else tree.digest, commit=fetch.commit or None, branch=fetch.branch or None,
        dirty=False, is_stored=tree is not None, size=None if tree is None else tree.size,
        files=None if tree is None else tree.file_count, git=git,
    )  # fmt: skip


def chunk_key(chunk: CodeChunk) -> str:
    return f"{chunk.project_id}/{chunk.key}"


def touch_tree(project: Project, digest: str, at: datetime) -> CodeTree | None:
    """Extend the retention of a stored tree by a day.

    Return the tree without its files, or None if it is not stored.
    """
    rows = CodeTree.objects.filter(project=project, digest=digest, used_at__lt=at - TOUCH_AFTER)
    rows.update(used_at=at)
    return find_tree(project, digest)


def find_tree(project: Project, digest: str) -> CodeTree | None:
    """Return the stored tree without its files, or None if it is not stored."""
    return CodeTree.objects.filter(project=project, digest=digest).defer("files", "chunks").first()


def _touch_chunks(project: Project, digests: Iterable[str], at: datetime) -> dict[str, int]:
    """Extend the retention of stored chunks by a day. Return the chunk sizes, keyed by digest."""
    rows = CodeChunk.objects.filter(project=project, digest__in=list(digests))
    rows.filter(used_at__lt=at - TOUCH_AFTER).update(used_at=at)
    return dict(rows.values_list("digest", "size"))


def _store_tree(
    project: Project, digest: str, files: Sequence[CodeFile], chunks: Sequence[str], at: datetime
) -> None:
    if touch_tree(project, digest, at) is not None:
        return
    entries = [_file_entry(file) for file in files]
    _check_space(project, len(json.dumps(entries)))
    tree = CodeTree(
        project=project, digest=digest, size=sum(file.size for file in files), file_count=len(files),
        files=entries, chunks=list(chunks), created_at=at, used_at=at,
    )  # fmt: skip
    CodeTree.objects.bulk_create([tree], ignore_conflicts=True)


def _file_entry(file: CodeFile) -> dict[str, Any]:
    return {name: value for name, value in asdict(file).items() if value}


def _tree_digest(files: Sequence[CodeFile]) -> str:
    text = json.dumps([_file_entry(file) for file in files], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_files(files: Sequence[CodeFile]) -> None:
    """Raise Invalid if the list is empty or too large, or contains invalid or conflicting files."""
    limits = code_limits()
    if not files:
        raise Invalid([Problem("files", "is empty", "", "at least one file")])
    if len(files) > limits.files:
        allowed = f"at most {limits.files:,} files; {IGNORE_HINT}"
        raise Invalid([Problem("files", "has too many files", f"{len(files):,}", allowed)])
    problems = [_file_problem(index, file) for index, file in enumerate(files)]
    if invalid := [problem for problem in problems if problem is not None]:
        raise Invalid(invalid[:LARGEST_SHOWN])
    path, reason = nesting_problem(file.path for file in files)
    if path:
        raise Invalid([Problem("files", f"has a path that {reason}", format_value(path), "distinct paths")])
    size = sum(file.size for file in files)
    if size > limits.size:
        largest = sorted(files, key=lambda file: file.size, reverse=True)[:LARGEST_SHOWN]
        names = ", ".join(f"{file.path} ({_format_mib(file.size)})" for file in largest)
        allowed = (
            f"at most {_format_mib(limits.size)}. Largest files: {names}. To leave files out, {IGNORE_HINT}"
        )
        raise Invalid([Problem("files", "are too large in total", _format_mib(size), allowed)])


def _file_problem(index: int, file: CodeFile) -> Problem | None:
    path, reason = f"files[{index}].path", path_problem(file.path)
    if reason:
        return Problem(path, reason, format_value(file.path), "a relative path with names joined by /")
    if file.link:
        reason = link_problem(file.path, file.link)
        if reason or file.chunks or file.size or file.executable:
            received, allowed = format_value(file.path), "a relative link to a path in the tree"
            return Problem(path, reason or "is a link with content", received, allowed)
        return None
    if len(file.chunks) != -(-file.size // CHUNK_BYTES):
        allowed = f"one chunk for each {CHUNK_BYTES} bytes"
        return Problem(f"files[{index}].chunks", "do not match the size", f"{len(file.chunks)}", allowed)
    return None


def _check_chunk_sizes(files: Sequence[CodeFile], sizes: dict[str, int]) -> None:
    """Raise Invalid if the chunks of a file do not have the declared size."""
    for index, file in enumerate(files):
        if sum(sizes[digest] for digest in file.chunks) != file.size:
            problem = Problem(
                f"files[{index}].size", "is wrong", f"{file.size}", "the total size of its chunks"
            )
            raise Invalid([problem])


def _check_contents(chunks: Sequence[tuple[str, bytes]]) -> None:
    for index, (digest, content) in enumerate(chunks):
        if not 0 < len(content) <= CHUNK_BYTES:
            received, allowed = f"{len(content)} bytes", f"1 to {CHUNK_BYTES} bytes"
            raise Invalid([Problem(f"chunks[{index}]", "has the wrong size", received, allowed)])
        if hashlib.sha256(content).hexdigest() != digest:
            message = "does not have this SHA-256 digest; the file may have changed while it was being sent"
            raise Invalid([Problem(f"chunks[{index}]", message, digest, "the digest of its content")])


def _check_space(project: Project, added: int) -> None:
    limit, used = code_limits().project_size, stored_size(project)
    if used + added > limit:
        raise Conflict(
            f"This code does not fit: project {project.name} already stores {_format_mib(used)} of code, and "
            f"its limit is {_format_mib(limit)}. Delete ended workloads, whose code is removed within a day, "
            f"or {IGNORE_HINT}."
        )


def _format_mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"
