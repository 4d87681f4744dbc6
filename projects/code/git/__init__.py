"""Fetch the files of a commit with git. The repository is untrusted, because users choose it."""

from projects.code.git.errors import GitFailure, GitRejection
from projects.code.git.fetch import FetchedCommit, FetchRequest, fetch_commit
from projects.code.git.policy import GitPolicy

__all__ = ["FetchRequest", "FetchedCommit", "GitFailure", "GitPolicy", "GitRejection", "fetch_commit"]
