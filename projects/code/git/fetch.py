"""Fetch one commit, and read its files from Git's object database.

Nothing is checked out, so git runs neither filters nor hooks.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from berth.core.spec.sections.git import COMMIT, GitSpec, ref_problem
from projects.code.base import CodeFile
from projects.code.git.access import build_environment
from projects.code.git.errors import GitRejection, convert_error, transfer_too_large_error
from projects.code.git.files import list_files, store_files
from projects.code.git.policy import GitPolicy, resolve_host
from projects.code.git.program import GitProgram
from projects.code.git.scratch import key_directory, scratch_directory

LOCAL_REF = "refs/berth/code"
BRANCHES, TAGS = "refs/heads/", "refs/tags/"
FILE_TOO_LARGE = 128 + 25, -25  # exit statuses of a process that received SIGXFSZ


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Request to fetch code. `base` is the directory for temporary files."""

    spec: GitSpec
    policy: GitPolicy
    base: Path
    secret: str = field(default="", repr=False)
    is_interrupted: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class FetchedCommit:
    """Commit whose files have been fetched and stored.

    `submodules` is the number of its submodules, which are not fetched.
    """

    commit: str
    branch: str
    files: tuple[CodeFile, ...]
    submodules: int


@dataclass(frozen=True, slots=True)
class _FetchTarget:
    """Full name of the branch or tag to fetch, or a commit ID."""

    name: str
    branch: str = ""
    has_long_ids: bool = False


def fetch_commit(request: FetchRequest, store: Callable[[Mapping[str, bytes]], None]) -> FetchedCommit:
    """Fetch the commit, and pass the chunks of its files to `store`, keyed by digest.

    Raises GitRejection for a permanent failure, GitFailure for a temporary one, and GitInterrupted if this
    process is being stopped.
    """
    spec, policy = request.spec, request.policy
    address = resolve_host(spec.address, policy)
    with scratch_directory(request.base) as directory, scratch_directory(key_directory(request.base)) as keys:
        environment = build_environment(spec, request.secret, address, policy, directory, keys)
        git = GitProgram(
            directory, environment, policy.transfer_size, time.monotonic() + policy.seconds,
            request.is_interrupted,
        )  # fmt: skip
        fetch = _Fetch(spec, git)
        target = fetch.find_target()
        commit = fetch.transfer(target)
        tree = fetch.find_tree(commit)
        listing = list_files(git, tree, policy)
        files = store_files(git, listing.entries, store)
        return FetchedCommit(commit, target.branch, files, listing.submodules)


@dataclass(frozen=True, slots=True)
class _Fetch:
    spec: GitSpec
    git: GitProgram

    def find_target(self) -> _FetchTarget:
        """Return the branch, tag or commit named in the document."""
        ref = self.spec.ref
        if ref is not None and COMMIT.fullmatch(ref):
            return _FetchTarget(ref, has_long_ids=len(ref) == 64)
        names = [f"{BRANCHES}{ref}", f"{TAGS}{ref}"]
        if ref is None or ref.startswith("refs/"):
            names = [ref or "HEAD"]
        ids, default = self._list_refs(names)
        matches = [name for name in names if name in ids]
        if ref is None:
            if not matches:
                raise GitRejection(
                    f"The default branch of {self.spec.url} has no commits. Set `ref` to a branch."
                )
            name = default or "HEAD"
            return _FetchTarget(name, _branch_name(name), len(ids["HEAD"]) == 64)
        if not matches:
            raise GitRejection(
                f"{self.spec.url} has no branch or tag {ref}. To use a commit, specify its full hash."
            )
        if len({ids[name] for name in matches}) > 1:
            raise GitRejection(
                f"{ref} is both a branch and a tag in {self.spec.url}. Set `ref` to {BRANCHES}{ref} or to "
                f"{TAGS}{ref}."
            )
        return _FetchTarget(matches[0], _branch_name(matches[0]), len(ids[matches[0]]) == 64)

    def _list_refs(self, names: list[str]) -> tuple[dict[str, str], str]:
        """Return the object IDs of the refs, and the ref that HEAD points to."""
        output = self._run_git("ls-remote", "--quiet", "--symref", "--", self._url, *names)
        ids, default = dict[str, str](), ""
        for line in output.splitlines():
            value, _, name = line.partition("\t")
            if value.startswith("ref: ") and name == "HEAD":
                named = value.removeprefix("ref: ")
                default = "" if ref_problem(named) else named
            elif name in names and COMMIT.fullmatch(value):
                ids[name] = value
        return ids, default

    def transfer(self, target: _FetchTarget) -> str:
        """Fetch the commit without its history, and return its ID."""
        git, repository = self.git, str(self.git.repository)
        kind = "sha256" if target.has_long_ids else "sha1"
        self._run_git("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", "--", repository)
        self._run_git(
            "--git-dir", repository, "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules",
            "--no-write-fetch-head", "--", self._url, f"+{target.name}:{LOCAL_REF}",
        )  # fmt: skip
        status, output, _ = git.run(
            "--git-dir", repository, "rev-parse", "--verify", "--quiet", f"{LOCAL_REF}^{{commit}}"
        )
        if status:
            raise GitRejection(
                f"{self.spec.ref} is not a commit in {self.spec.url}. Set `ref` to a branch, a tag or the "
                "full hash of a commit."
            )
        return output.strip()

    def find_tree(self, commit: str) -> str:
        """Return the object ID of the directory named in the document, by default the root directory."""
        directory = self.spec.directory
        name = f"{commit}^{{tree}}" if directory is None else f"{commit}:{directory}"
        status, output, _ = self.git.run(
            "--git-dir", str(self.git.repository), "rev-parse", "--verify", "--quiet", name
        )
        tree = output.strip()
        if not status and COMMIT.fullmatch(tree) and self._is_tree(tree):
            return tree
        raise GitRejection(
            f"Commit {commit[:10]} in {self.spec.url} has no directory {directory}. Correct `directory`."
        )

    def _is_tree(self, object_id: str) -> bool:
        _, output, _ = self.git.run("--git-dir", str(self.git.repository), "cat-file", "-t", object_id)
        return output.strip() == "tree"

    def _run_git(self, *arguments: str) -> str:
        status, output, errors = self.git.run(*arguments)
        if status in FILE_TOO_LARGE:
            raise transfer_too_large_error(self.spec.address.host)
        if status:
            raise convert_error(errors, self.spec.address.host, self.spec.secret_label)
        return output

    @property
    def _url(self) -> str:
        return self.spec.address.argument


def _branch_name(name: str) -> str:
    return name.removeprefix(BRANCHES) if name.startswith(BRANCHES) else ""
