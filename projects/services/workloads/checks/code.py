"""Check that a document's code is stored in its project, and that its pools support code."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from django.conf import settings

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value, suggest
from berth.core.spec import WorkloadSpec
from berth.core.spec.sections.git import GitSpec
from pools.joining.server import reachable_server_for_pods
from pools.models import NodePool
from pools.providers.base import ProviderError
from pools.runtimes.capabilities import runtime_capabilities
from projects.code.git.installation import git_policy
from projects.delivering.destination import find_rejection_without_lookup
from projects.models import CodeFetch, CodeTree, Project
from projects.services.workloads.submission_view import SubmissionView

NO_CODE = "no code; build an image that contains it"
UPLOAD = "code that the project has stored; `berth submit --code DIR` stores a directory"


def find_code(view: SubmissionView, spec: WorkloadSpec, project: Project, at: datetime) -> CodeTree | None:
    """Return the stored code tree that the document refers to, or None if it refers to none.

    Raises Invalid if the project has no such tree.
    """
    if spec.code is None or spec.code.tree is None:
        return None
    tree = view.code_tree(project, spec.code.tree, at)
    if tree is None:
        message = f"is not stored in project {project.name}, or has expired"
        raise Invalid([Problem("code.tree", message, format_value(spec.code.tree), UPLOAD)])
    return tree


def prepare_code_fetch(
    view: SubmissionView, spec: WorkloadSpec, project: Project, at: datetime
) -> CodeFetch | None:
    """Return a request to fetch the document's code, or None if it names no Git repository.

    Raises Invalid for a forbidden address or a missing secret, or if this installation does not fetch code.
    """
    git = spec.code.git if spec.code is not None else None
    if git is None:
        return None
    if settings.BERTH_GIT_FETCHES < 1:
        message = "cannot be used: this installation fetches no code (BERTH_GIT_FETCHES is 0)"
        raise Invalid([Problem("code.git", message, "", UPLOAD)])
    policy, address = git_policy(), git.address
    if not policy.allows_private_address(address):
        host = f"[{address.host}]" if ":" in address.host else address.host
        if reason := find_rejection_without_lookup(f"https://{host}:{address.effective_port}/", ()):
            allowed = "hosts at public addresses, and hosts that an admin lists in BERTH_GIT_HOSTS"
            raise Invalid([Problem("code.git.url", f"cannot be reached: {reason}", git.url, allowed)])
    if git.secret is not None and (problem := _secret_problem(view, git, git.secret, project)) is not None:
        raise Invalid([problem])
    return view.code_fetch(project, git, at)


def _secret_problem(view: SubmissionView, git: GitSpec, secret: str, project: Project) -> Problem | None:
    """Return a problem if the secret does not exist, else None. Its value is not checked here."""
    names = view.personal_secret_names if git.personal else view.fetch_secret_names(project)
    if secret in names:
        return None
    message = "is not one of your personal secrets" if git.personal else f"is not a secret of {project.name}"
    option = "--personal" if git.personal else f"--project {project.name}"
    if not git.personal and secret in view.personal_secret_names:
        allowed = (
            "`personal: true`, or --git-secret personal/NAME, to use your personal secret with this name"
        )
    else:
        allowed = suggest(secret, sorted(names)) or f"a secret; `berth secret set NAME {option}` sets one"
    return Problem("code.git.secret", message, format_value(secret), allowed)


def pools_for_code(spec: WorkloadSpec, pools: Sequence[str], rows: Mapping[str, NodePool]) -> list[str]:
    """Return the pools in `rows` whose pods can start with the document's code.

    Raises Invalid if there is none, or if the document lists a pool that does not support code.
    """
    if spec.code is None:
        return list(pools)
    rejections = {name: reason for name in pools if (reason := code_rejection(rows[name]))}
    accepting = [name for name in pools if name not in rejections]
    if not accepting:
        reasons = "; ".join(f"pool {name}: {reason}" for name, reason in rejections.items())
        raise Invalid([Problem("code", f"cannot be used: {reasons}", format_value(spec.code.label), NO_CODE)])
    listed = [
        Problem(f"pools[{index}]", f"cannot be used with code: {rejections[name]}", format_value(name),
                ", ".join(accepting))
        for index, name in enumerate(spec.pools) if name in rejections
    ]  # fmt: skip
    if listed:
        raise Invalid(listed)
    return accepting


def code_rejection(pool: NodePool) -> str:
    """Return why pods of the pool cannot start with code, or an empty string if they can."""
    if not runtime_capabilities(pool.runtime).receives_code:
        return f"the runtime {pool.runtime} does not send code to pods"
    try:
        reachable_server_for_pods(pool.provider)
    except ProviderError as error:
        return str(error)
    return ""
