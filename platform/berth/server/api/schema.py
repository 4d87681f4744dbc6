"""Generate the OpenAPI 3.1 document from the request and answer models."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiParameter
from pydantic import BaseModel

from berth.server.api.answers import ProblemAnswer

REF = "#/components/schemas/{model}"
F = TypeVar("F", bound=Callable[..., Any])
READ_TYPES = ("application/json", "application/yaml")


@dataclass(frozen=True, slots=True)
class Described:
    """What one method of a door takes and gives."""

    summary: str
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    answer: type[BaseModel] | None = None
    page: type[BaseModel] | None = None
    text: str = ""
    status: int = 200
    headers: tuple[str, ...] = ()
    also: tuple[int, ...] = ()
    instead: tuple[int, type[BaseModel]] | None = None
    bytes_of: str = ""


def described(
    summary: str,
    *,
    query: type[BaseModel] | None = None,
    body: type[BaseModel] | None = None,
    answer: type[BaseModel] | None = None,
    page: type[BaseModel] | None = None,
    text: str = "",
    status: int = 200,
    headers: tuple[str, ...] = (),
    also: tuple[int, ...] = (),
    instead: tuple[int, type[BaseModel]] | None = None,
    bytes_of: str = "",
) -> Callable[[F], F]:
    """`page` is one item of a list that comes in pages; `text` the media type of an answer that is no JSON;
    `headers` those a request may carry; `also` further statuses with the same answer;
    `instead` a status with another one; `bytes_of` the media type of a body that is no document."""
    found = Described(summary, query, body, answer, page, text, status, headers, also, instead, bytes_of)

    def mark(method: F) -> F:
        method.described = found  # type: ignore[attr-defined]
        return method

    return mark


class DoorSchema(AutoSchema):
    """One operation, from what stands on the method."""

    @property
    def told(self) -> Described:
        return getattr(self.view, self.method.lower()).described

    def get_request_serializer(self) -> None:
        """There are none here: models describe bodies and answers."""

    def get_response_serializers(self) -> None:
        """The same."""

    def get_operation_id(self) -> str:
        name = type(self.view).__name__
        return f"{self.method.lower()}{name}"

    def get_summary(self) -> str:
        return self.told.summary

    def get_description(self) -> str:  # type: ignore[override]
        return ""

    def get_tags(self) -> list[str]:
        return [self.path.removeprefix("/api/v1/").split("/")[0]]

    def get_override_parameters(self) -> list[Any]:
        found = [_header(name) for name in self.told.headers]
        if self.method == "POST":
            found.append(_header("Idempotency-Key"))
        if self.told.query is not None:
            found += _parameters(self.told.query)
        return found

    def _get_request_body(self, direction: str = "request") -> dict[str, Any] | None:
        if self.told.bytes_of:
            plain = {"schema": {"type": "string", "format": "binary"}}
            return {"required": True, "content": {self.told.bytes_of: plain}}
        if self.told.body is None:
            return None
        reference = self._reference(self.told.body, "validation")
        return {"required": True, "content": {kind: {"schema": reference} for kind in READ_TYPES}}

    def _get_response_bodies(self, direction: str = "response") -> dict[str, Any]:
        told, content = self.told, self._content()
        fine = {"description": "Done.", **({"content": content} if content else {})}
        problem = {"application/problem+json": {"schema": self._reference(ProblemAnswer, "serialization")}}
        answers: dict[str, Any] = {str(status): fine for status in (told.status, *told.also)}
        if told.instead is not None:
            status, model = told.instead
            other = {"application/json": {"schema": self._reference(model, "serialization")}}
            answers[str(status)] = {"description": "Done.", "content": other}
        return {**answers, "default": {"description": "What went wrong.", "content": problem}}

    def _content(self) -> dict[str, Any]:
        told = self.told
        content: dict[str, Any] = {}
        if told.page is not None:
            items = {"type": "array", "items": self._reference(told.page, "serialization")}
            following = {"type": ["string", "null"], "description": "`cursor` of the next page."}
            shape = {"type": "object", "properties": {"items": items, "next": following}}
            content["application/json"] = {"schema": {**shape, "required": ["items", "next"]}}
        elif told.answer is not None:
            content["application/json"] = {"schema": self._reference(told.answer, "serialization")}
        if told.text:
            content[told.text] = {"schema": {"type": "string"}}
        return content

    def _reference(self, model: type[BaseModel], mode: Any) -> dict[str, Any]:
        schema = model.model_json_schema(ref_template=REF, mode=mode)
        parts = schema.pop("$defs", {})
        if "$ref" not in schema:
            parts = {**parts, model.__name__: schema}
        for name, part in parts.items():
            self.registry.register_on_missing(
                ResolvedComponent(name=name, type=ResolvedComponent.SCHEMA, object=name, schema=part)
            )
        return {"$ref": REF.format(model=model.__name__)}


def _header(name: str) -> OpenApiParameter:
    schema = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]*$"}
    return OpenApiParameter(name, schema, OpenApiParameter.HEADER)


def _parameters(query: type[BaseModel]) -> list[OpenApiParameter]:
    schema = query.model_json_schema(mode="validation")
    parts = schema.get("$defs", {})
    found = []
    for name, given in schema["properties"].items():
        plain = _without_null(given)
        if "$ref" in plain:
            plain = {**parts[plain["$ref"].rpartition("/")[2]]}
        text = plain.pop("description", "")
        plain.pop("title", None)
        needed = name in schema.get("required", ())
        many = plain.get("type") == "array"
        found.append(
            OpenApiParameter(
                name, plain, OpenApiParameter.QUERY, needed, text, explode=True if many else None
            )
        )
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is there or is not; null is no value it can have."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"]
    plain = {**schema, **kinds[0]} if len(kinds) == 1 else dict(schema)
    if len(kinds) == 1:
        plain.pop("anyOf", None)
    if plain.get("default") is None:
        plain.pop("default", None)
    return plain
