"""Validate query parameters: known names, correct types, repeated only where allowed."""

from typing import Annotated, Any, TypeVar, get_origin

from django.http import QueryDict
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from rest_framework.request import Request

from berth.core.errors import Invalid
from berth.core.problems import Problem, shown
from berth.core.spec.texts import plain
from berth.server.api.bodies import checked

Q = TypeVar("Q", bound="Query")

Word = Annotated[str, Field(min_length=1, max_length=253), AfterValidator(plain)]
Many = tuple[Word, ...]


class Query(BaseModel):
    """The parameters of one address; text that reads as the type will do."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ListQuery(Query):
    limit: Annotated[int, Field(ge=1, le=500, description="So many items at most.")] = 50
    cursor: (
        Annotated[str, Field(min_length=1, max_length=2000, description="`next` of the page before.")] | None
    ) = None


def query_of(request: Request, model: type[Q]) -> Q:
    return checked(model, _values(request.query_params, model))


def may_repeat(model: type[Query], name: str) -> bool:
    field = model.model_fields.get(name)
    return field is not None and get_origin(field.annotation) is tuple


def _values(given: QueryDict, model: type[Query]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, texts in given.lists():
        if may_repeat(model, name):
            values[name] = texts
        elif len(texts) > 1:
            raise Invalid([Problem(name, "given more than once", shown(texts), "one value")])
        else:
            values[name] = texts[0]
    return values


def no_query(request: Request) -> None:
    """For addresses that take no parameter at all."""
    query_of(request, Query)
