"""Validate request bodies, query parameters and preconditions."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_origin

from django.http import QueryDict
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from rest_framework.request import Request

from berth.core.errors import Invalid, PreconditionFailed, PreconditionRequired
from berth.core.problems import Problem, shown
from berth.core.spec.findings import problems_of
from berth.core.spec.parse import DEPTH_MAX, too_deep
from berth.core.spec.texts import plain

M = TypeVar("M", bound=BaseModel)
Q = TypeVar("Q", bound="Query")

Word = Annotated[str, Field(min_length=1, max_length=253), AfterValidator(plain)]
CHANGED = "It changed after you read it. Read it again and repeat the request with the new ETag."


class Body(BaseModel):
    """A request body: exact types, no unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    def explicit_values(self) -> dict[str, Any]:
        """Return only the keys of the request: a missing key leaves a value unchanged, null clears it."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class NoBody(Body):
    """An empty body."""


class Query(BaseModel):
    """The query parameters of one URL, converted from text."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ListQuery(Query):
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of items.")] = 50
    cursor: (
        Annotated[str, Field(min_length=1, max_length=2000, description="`next` of the previous page.")]
        | None
    ) = None


def parse_document(request: Request) -> Mapping[str, Any]:
    """Return the body as keys and values of bounded depth. Raises Invalid."""
    data = request.data
    if not isinstance(data, Mapping):
        raise Invalid([Problem("", "is not an object", shown(data), "keys and values")])
    if too_deep(data):
        raise Invalid([Problem("", "too deep", "", f"at most {DEPTH_MAX} nested levels")])
    if not_text := [key for key in data if not isinstance(key, str)]:
        raise Invalid([Problem(shown(key), "is not a key", shown(key), "text") for key in not_text])
    return data


def parse_body(request: Request, model: type[M]) -> M:
    """Return the body as a validated model. Raises Invalid with every problem."""
    return validated(model, parse_document(request))


def parse_query(request: Request, model: type[Q]) -> Q:
    """Return the query parameters as a validated model. Raises Invalid with every problem."""
    return validated(model, _query_values(request.query_params, model))


def no_query(request: Request) -> None:
    """Raise Invalid if the request has any query parameter."""
    parse_query(request, Query)


def validated(model: type[M], data: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = set(problems_of(error, model))
    raise Invalid(sorted(problems, key=lambda problem: (problem.path, problem.message, problem.received)))


def may_repeat(model: type[Query], name: str) -> bool:
    field = model.model_fields.get(name)
    return field is not None and get_origin(field.annotation) is tuple


def _query_values(parameters: QueryDict, model: type[Query]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, texts in parameters.lists():
        if may_repeat(model, name):
            values[name] = texts
        elif len(texts) > 1:
            raise Invalid([Problem(name, "appears more than once", shown(texts), "one value")])
        else:
            values[name] = texts[0]
    return values


def etag(version: int | str) -> str:
    return f'"{version}"'


def expected_version(request: Request, current: int | None) -> int | None:
    """Return the version that a change must find, from If-Match and If-None-Match.

    `current` is the stored version, None if there is no object yet. 0 means "must not exist yet", None
    any version (`If-Match: *`). Raises PreconditionFailed or PreconditionRequired.
    """
    match, none_match = request.headers.get("If-Match"), request.headers.get("If-None-Match")
    if current is None:
        return _version_to_create(match, none_match)
    if none_match is not None:
        if none_match.strip() == "*" or etag(current) in _tags(none_match):
            raise PreconditionFailed("It already exists. Read it and send its ETag in If-Match.")
        if match is None:
            return current
    if match is None:
        raise PreconditionRequired("Send the ETag that you read in If-Match.")
    return _matching_version(match, current)


def optional_version(request: Request, current: int) -> int | None:
    """Return the version in If-Match; None for any version or if the header is missing."""
    match = request.headers.get("If-Match")
    return None if match is None else _matching_version(match, current)


def expected_tag(request: Request) -> str | None:
    """Return the ETag of a preview from If-Match; None for `*`. Raises PreconditionRequired."""
    match = request.headers.get("If-Match")
    if match is None:
        raise PreconditionRequired(
            "Send the ETag of a preview in If-Match, or `If-Match: *` to apply without a preview."
        )
    tag = match.strip()
    return None if tag == "*" else tag.removeprefix('"').removesuffix('"')


def _matching_version(match: str, current: int) -> int | None:
    if match.strip() == "*":
        return None
    if etag(current) not in _tags(match):
        raise PreconditionFailed(CHANGED)
    return current


def _version_to_create(match: str | None, none_match: str | None) -> int:
    if match is not None:
        raise PreconditionFailed(
            "It does not exist yet. To create it, send `If-None-Match: *` and leave If-Match out."
        )
    if none_match is None:
        raise PreconditionRequired("It does not exist yet. To create it, send `If-None-Match: *`.")
    return 0


def _tags(header: str) -> list[str]:
    """Split a header into tags; weak ones (`W/"3"`) never match, as RFC 9110 demands of If-Match."""
    return [tag.strip() for tag in header.split(",")]
