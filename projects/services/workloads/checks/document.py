"""Check a submission's document against its project, pools, code, secrets and volumes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple

from berth.core.errors import BerthError, Invalid
from berth.core.problems import Problem
from berth.core.spec import SpecError, WorkloadSpec, parse_workload
from berth.core.spec.parsing.manifest import is_manifest
from berth.core.spec.parsing.parse import is_too_deep
from berth.core.spec.parsing.valid_part import parse_valid_part
from projects.models import CodeFetch, CodeTree, Project
from projects.services.inference import services
from projects.services.workloads.checks.code import find_code, pools_for_code, prepare_code_fetch
from projects.services.workloads.checks.features import pools_with_features
from projects.services.workloads.checks.general import (
    check_array_use,
    check_commands,
    check_deadline,
    resolve_pools,
    resolve_project,
)
from projects.services.workloads.checks.runtimes import pools_for_image
from projects.services.workloads.checks.secrets import pools_with_secrets
from projects.services.workloads.checks.volumes import pools_with_volumes
from projects.services.workloads.submission_view import SubmissionView


class References(NamedTuple):
    """Objects to which a checked document refers. `pools` are those that can run its pods."""

    project: Project
    pools: list[str]
    code: CodeTree | None
    code_fetch: CodeFetch | None


def parse_submission(
    view: SubmissionView,
    document: Mapping[str, Any],
    *,
    project: Project | None = None,
    at: datetime,
    is_array: bool = False,
) -> WorkloadSpec:
    """Parse a document that a user submits.

    Raises SpecError if the document is invalid. The error also contains the problems that `find_references`
    finds in the valid part of the document.
    """
    try:
        return parse_workload(document)
    except SpecError as error:
        raise with_problems_of_valid_part(view, document, error, project, at, is_array=is_array) from None


def with_problems_of_valid_part(
    view: SubmissionView,
    document: object,
    error: SpecError,
    project: Project | None,
    at: datetime,
    *,
    is_array: bool = False,
) -> SpecError:
    """Return the error with the problems that `find_references` finds in the valid part of the document."""
    if not isinstance(document, Mapping) or is_manifest(document) or is_too_deep(document):
        return error
    part = parse_valid_part(document)
    if part.spec is None:
        return error
    try:
        find_references(view, document, part.spec, project, at, is_array=is_array)
    except Invalid as further:
        reported = {problem.path for problem in error.problems}
        more = [each for each in further.problems if each.path not in reported and not part.is_affected(each)]
        return SpecError([*error.problems, *more])
    except BerthError:  # raised again once the document is valid
        return error
    return error


def find_references(
    view: SubmissionView,
    document: Mapping[str, Any],
    spec: WorkloadSpec,
    project: Project | None,
    at: datetime,
    *,
    is_array: bool,
) -> References:
    """Check a parsed document, and return the objects to which it refers.

    Raises Invalid with all problems, and NotFound or Forbidden if the user may not submit to the project.
    """
    problems: list[Problem] = []
    accepted_project: Project | None = None
    pools: list[str] | None = None
    code: CodeTree | None = None
    code_fetch: CodeFetch | None = None
    with _collect(problems):
        where = "metadata.namespace" if is_manifest(document) else "project"
        accepted_project = resolve_project(view, spec, project, where)
        view.require_submit_permission(accepted_project)
    with _collect(problems):
        check_array_use(spec, is_array=is_array)
    with _collect(problems):
        check_commands(spec)
    with _collect(problems):
        services.check_service(spec)
    with _collect(problems):
        check_deadline(spec, at)
    with _collect(problems):
        pools = resolve_pools(view, spec, at)
    for choose_pools in (pools_for_image, pools_with_features, pools_for_code):
        with _collect(problems):
            pools = None if pools is None else choose_pools(spec, pools, view.pools)
    if accepted_project is not None:
        with _collect(problems):
            pools = None if pools is None else pools_with_volumes(view, spec, accepted_project, pools)
        with _collect(problems):
            code = find_code(view, spec, accepted_project, at)
        with _collect(problems):
            code_fetch = prepare_code_fetch(view, spec, accepted_project, at)
        with _collect(problems):
            pools = None if pools is None else pools_with_secrets(view, spec, accepted_project, pools)
    if problems or accepted_project is None or pools is None:
        raise Invalid(problems)
    return References(accepted_project, pools, code, code_fetch)


@contextmanager
def _collect(problems: list[Problem]) -> Iterator[None]:
    """Add the problems of an Invalid error to the list instead of raising it."""
    try:
        yield
    except Invalid as error:
        problems += error.problems
