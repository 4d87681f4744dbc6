"""Validate request bodies against their models, naming every value that does not fit."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from rest_framework.request import Request

from berth.core.errors import Invalid
from berth.core.problems import Problem, shown
from berth.core.spec.findings import problems_of
from berth.core.spec.parse import DEPTH_MAX, too_deep

M = TypeVar("M", bound=BaseModel)


class Body(BaseModel):
    """Exact types, no unknown keys."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    def given(self) -> dict[str, Any]:
        """Only what stood in the body: for changes, "left out" and "null" are two things."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class NoBody(Body):
    """For what needs no more than its address."""


def document_of(request: Request) -> Mapping[str, Any]:
    """The body as keys and values, of a depth that can be worked with."""
    data = request.data
    if not isinstance(data, Mapping):
        raise Invalid([Problem("", "is not an object", shown(data), "keys and values")])
    if too_deep(data):
        raise Invalid([Problem("", "too deep", "", f"at most {DEPTH_MAX} levels inside each other")])
    if strange := [key for key in data if not isinstance(key, str)]:
        raise Invalid([Problem(shown(key), "is not a key", shown(key), "text") for key in strange])
    return data


def body_of(request: Request, model: type[M]) -> M:
    return checked(model, document_of(request))


def checked(model: type[M], data: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = set(problems_of(error, model))
    raise Invalid(sorted(found, key=lambda problem: (problem.path, problem.message, problem.given)))
