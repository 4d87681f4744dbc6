"""Validate request bodies, query parameters and preconditions."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_origin

from django.http import QueryDict
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from rest_framework.request import Request

from berth.core.errors import Invalid, PreconditionFailed, PreconditionRequired
from berth.core.problems import Problem, format_value
from berth.core.spec.parsing.findings import convert_errors
from berth.core.spec.parsing.parse import DEPTH_MAX, is_too_deep
from berth.core.spec.values.texts import validate_line

M = TypeVar("M", bound=BaseModel)
Q = TypeVar("Q", bound="Query")

Word = Annotated[str, Field(min_length=1, max_length=253), AfterValidator(validate_line)]
CHANGED_MESSAGE = "The object changed after you read it. Fetch it again and retry with the new ETag."


class Body(BaseModel):
    """Base model for request bodies: strict types, no unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    def explicit_values(self) -> dict[str, Any]:
        """Return the values of the keys that the request contains.

        A missing key leaves the stored value unchanged, and null clears it.
        """
        return {name: getattr(self, name) for name in self.model_fields_set}


class NoBody(Body):
    """Empty request body."""


class Query(BaseModel):
    """Base model for URL query parameters, which are converted from text."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ListQuery(Query):
    limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of items.")] = 50
    cursor: (
        Annotated[
            str, Field(min_length=1, max_length=2000, description="The `next` value of the previous page.")
        ]
        | None
    ) = None


def parse_document(request: Request) -> Mapping[str, Any]:
    """Return the body as a mapping. Raises Invalid if the body is not an object or is nested too deeply."""
    data = _parse_object(request)
    if is_too_deep(data):
        raise Invalid([Problem("", "too deep", "", f"at most {DEPTH_MAX} nested levels")])
    return data


def _parse_object(request: Request) -> Mapping[str, Any]:
    data = request.data
    if not isinstance(data, Mapping):
        raise Invalid([Problem("", "is not an object", format_value(data), "keys and values")])
    if non_text_keys := [key for key in data if not isinstance(key, str)]:
        raise Invalid(
            [
                Problem(format_value(key), "is not a valid key", format_value(key), "text")
                for key in non_text_keys
            ]
        )
    return data


def parse_body(request: Request, model: type[M]) -> M:
    """Return the body as a validated model. Raises Invalid with all problems."""
    return validate(model, parse_document(request))


def parse_batch(request: Request, model: type[M]) -> M:
    """Return the body of a batch request. The caller checks the nesting depth of each document."""
    return validate(model, _parse_object(request))


def parse_query(request: Request, model: type[Q]) -> Q:
    """Return the query parameters as a validated model. Raises Invalid with all problems."""
    return validate(model, _query_values(request.query_params, model))


def validate(model: type[M], data: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problems = set(convert_errors(error, model))
    raise Invalid(sorted(problems, key=lambda problem: (problem.path, problem.message, problem.received)))


def is_list_parameter(model: type[Query], name: str) -> bool:
    field = model.model_fields.get(name)
    return field is not None and get_origin(field.annotation) is tuple


def _query_values(parameters: QueryDict, model: type[Query]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, texts in parameters.lists():
        if is_list_parameter(model, name):
            values[name] = texts
        elif len(texts) > 1:
            raise Invalid([Problem(name, "appears more than once", format_value(texts), "one value")])
        else:
            values[name] = texts[0]
    return values


def etag(version: int | str) -> str:
    return f'"{version}"'


def expected_version(request: Request, current: int | None) -> int | None:
    """Return the version that If-Match or If-None-Match requires.

    The result is 0 if the object must not exist yet, and None if any version is allowed. `current` is the
    stored version, or None if the object does not exist. Raises PreconditionFailed or PreconditionRequired.
    """
    match, none_match = request.headers.get("If-Match"), request.headers.get("If-None-Match")
    if current is None:
        return _version_to_create(match, none_match)
    if none_match is not None:
        if none_match.strip() == "*" or etag(current) in _split_tags(none_match):
            raise PreconditionFailed("The object already exists. Read it and send its ETag in If-Match.")
        if match is None:
            return current
    if match is None:
        raise PreconditionRequired("Send the object's ETag in If-Match.")
    return _matching_version(match, current)


def optional_version(request: Request, current: int) -> int | None:
    """Return the version from If-Match, or None for `*` or a missing header."""
    match = request.headers.get("If-Match")
    return None if match is None else _matching_version(match, current)


def expected_etag(request: Request) -> str | None:
    """Return the preview's ETag from If-Match, or None for `*`.

    Raises PreconditionRequired if the header is missing.
    """
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
    if etag(current) not in _split_tags(match):
        raise PreconditionFailed(CHANGED_MESSAGE)
    return current


def _version_to_create(match: str | None, none_match: str | None) -> int:
    if match is not None:
        raise PreconditionFailed(
            "The object does not exist yet. To create it, send `If-None-Match: *` without `If-Match`."
        )
    if none_match is None:
        raise PreconditionRequired("The object does not exist yet. To create it, send `If-None-Match: *`.")
    return 0


def _split_tags(header: str) -> list[str]:
    """Split a header into ETags. Weak ones (`W/"3"`) never match, as RFC 9110 requires."""
    return [tag.strip() for tag in header.split(",")]
