"""The `code` section of a workload document, and the rules for file trees."""

import posixpath
from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from berth.core.spec.roles import Document
from berth.core.spec.sections.git import GitSpec
from berth.core.spec.values.texts import Text

CHUNK_BYTES = 4 * 2**20  # files are stored in chunks of this size
PATH_MAX, NAME_MAX = 1024, 255  # in bytes

SOURCES = "`tree` with the ID of stored files, or `git` with a repository address"
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", min_length=64, max_length=64)]


def _reject_path(value: Any) -> Any:
    if isinstance(value, str):
        allowed = "the ID of a stored tree; `berth submit --code DIR` and the Python client send a directory"
        raise PydanticCustomError("code_path", "is a path", {"allowed": allowed})
    return value


class CodeSpec(Document):
    """Files that each pod starts with, from `tree` or `git`.

    `tree` is the ID of files stored in the project. `commit`, `branch` and `dirty` describe their Git
    checkout. With `git`, Berth fetches the files.
    """

    tree: Digest | None = None
    git: GitSpec | None = None
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")] | None = None
    branch: Annotated[Text, Field(min_length=1, max_length=255)] | None = None
    dirty: bool = False

    @property
    def label(self) -> str:
        """Short text for messages: the tree ID or the repository address."""
        return self.git.url if self.git is not None else str(self.tree)

    @model_validator(mode="after")
    def _validate_source(self) -> "CodeSpec":
        if (self.tree is None) == (self.git is None):
            message = "has no source" if self.tree is None else "has two sources"
            raise PydanticCustomError("code_source", "{message}", {"message": message, "allowed": SOURCES})
        if self.git is not None and (self.commit or self.branch or self.dirty):
            raise PydanticCustomError(
                "code_state", "has keys of a local checkout, but the code comes from a Git server",
                {"allowed": "`git` without commit, branch and dirty; name the commit in git.ref"},
            )  # fmt: skip
        return self


Code = Annotated[CodeSpec | None, BeforeValidator(_reject_path)]


def path_problem(path: str) -> str:
    """Return why a path cannot be part of a tree, or an empty string if it can."""
    parts = path.split("/")
    if not _is_text(path):
        return "is not a UTF-8 path"
    if path.startswith("/") or ".." in parts:
        return "is outside the tree"
    if "" in parts or "." in parts:
        return "is not a normalized path"
    if len(path.encode()) > PATH_MAX or any(len(part.encode()) > NAME_MAX for part in parts):
        return f"is longer than {PATH_MAX} bytes, or contains a name of more than {NAME_MAX} bytes"
    return ""


def link_problem(path: str, target: str) -> str:
    """Return why a tree may not contain this symbolic link, or "" if it may.

    `..` is allowed only at the start of the target. Elsewhere, it could follow another link out of the tree.
    """
    parts = target.split("/")
    inner = [part for part in parts if part not in ("", ".")]
    while inner and inner[0] == "..":
        inner.pop(0)
    if not target or not _is_text(target) or len(target.encode()) > PATH_MAX:
        return "is a symbolic link with an invalid target"
    end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if target.startswith("/") or end == ".." or end.startswith("../") or ".." in inner:
        return f"is a symbolic link that leads out of the tree, to {target}"
    return ""


def nesting_problem(paths: Iterable[str]) -> tuple[str, str]:
    """Return the first conflicting path and the reason, or two empty strings.

    Paths conflict if they are equal, or if a file or link is the parent of another path.
    """
    # When paths are sorted by their parts, a path directly precedes the paths below it.
    ordered = sorted(paths, key=lambda path: path.replace("/", "\0"))
    for before, path in pairwise(ordered):
        if path == before:
            return path, "occurs twice"
        if path.startswith(f"{before}/"):
            return path, f"is below {before}, which is not a directory"
    return "", ""


def _is_text(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
