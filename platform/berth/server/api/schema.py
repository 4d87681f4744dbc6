"""The OpenAPI 3.1 document, generated from request and response models, and its Swagger UI."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar, cast

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiParameter
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from pydantic import BaseModel
from rest_framework.permissions import AllowAny

from berth.server.api.responses import ProblemResponse

REF = "#/components/schemas/{model}"
F = TypeVar("F", bound=Callable[..., Any])
BODY_TYPES = ("application/json", "application/yaml")


@dataclass(frozen=True, slots=True)
class Operation:
    """Decorator that describes a view method as an OpenAPI operation."""

    summary: str
    _: KW_ONLY
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    body_type: str = ""  # the media type of a binary body
    response: type[BaseModel] | None = None
    page: type[BaseModel] | None = None  # the model of an item in a paginated list
    media_type: str = ""  # the media type of a response that is not JSON
    status: int = 200
    also_status: int | None = None  # additional status code with the same response
    alternative: tuple[int, type[BaseModel]] | None = None  # additional status code with a different response
    headers: tuple[str, ...] = ()  # request headers

    def __call__(self, method: F) -> F:
        cast("Any", method).operation = self
        return method


operation = Operation


class ApiSchema(AutoSchema):
    """Generator of OpenAPI operations. Each is described by the `Operation` of its view method."""

    @property
    def operation(self) -> Operation:
        declared: Operation = getattr(self.view, self.method.lower()).operation
        return declared

    def get_request_serializer(self) -> None:
        """Return None, because Pydantic models describe request bodies."""

    def get_response_serializers(self) -> None:
        """Return None, because Pydantic models describe responses."""

    def get_operation_id(self) -> str:
        name = type(self.view).__name__
        return f"{self.method.lower()}{name}"

    def get_summary(self) -> str:
        return self.operation.summary

    def get_description(self) -> str:  # type: ignore[override]
        return ""

    def get_tags(self) -> list[str]:
        return [self.path.removeprefix("/api/v1/").split("/")[0]]

    def get_override_parameters(self) -> list[Any]:
        parameters = [_header(name) for name in self.operation.headers]
        if self.method == "POST":
            parameters.append(_header("Idempotency-Key"))
        if self.operation.query is not None:
            parameters += _parameters(self.operation.query)
        return parameters

    def _get_request_body(self, direction: str = "request") -> dict[str, Any] | None:
        if self.operation.body_type:
            plain = {"schema": {"type": "string", "format": "binary"}}
            return {"required": True, "content": {self.operation.body_type: plain}}
        if self.operation.body is None:
            return None
        reference = self._reference(self.operation.body, "validation")
        return {"required": True, "content": {kind: {"schema": reference} for kind in BODY_TYPES}}

    def _get_response_bodies(self, direction: str = "response") -> dict[str, Any]:
        operation, content = self.operation, self._response_content()
        success = {"description": "Success.", **({"content": content} if content else {})}
        problem = {"application/problem+json": {"schema": self._reference(ProblemResponse, "serialization")}}
        statuses = [operation.status, *([operation.also_status] if operation.also_status else [])]
        responses_by_status: dict[str, Any] = {str(status): success for status in statuses}
        if operation.alternative is not None:
            status, model = operation.alternative
            alternative_content = {"application/json": {"schema": self._reference(model, "serialization")}}
            responses_by_status[str(status)] = {"description": "Success.", "content": alternative_content}
        return {**responses_by_status, "default": {"description": "A problem document.", "content": problem}}

    def _response_content(self) -> dict[str, Any]:
        operation = self.operation
        content: dict[str, Any] = {}
        if operation.page is not None:
            items = {"type": "array", "items": self._reference(operation.page, "serialization")}
            next_cursor = {"type": ["string", "null"], "description": "The `cursor` value for the next page."}
            shape = {"type": "object", "properties": {"items": items, "next": next_cursor}}
            content["application/json"] = {"schema": {**shape, "required": ["items", "next"]}}
        elif operation.response is not None:
            content["application/json"] = {"schema": self._reference(operation.response, "serialization")}
        if operation.media_type:
            content[operation.media_type] = {"schema": {"type": "string"}}
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
    parameters = []
    for name, declared in schema["properties"].items():
        plain = _without_null(declared)
        if "$ref" in plain:
            plain = {**parts[plain["$ref"].rpartition("/")[2]]}
        text = plain.pop("description", "")
        plain.pop("title", None)
        required = name in schema.get("required", ())
        many = plain.get("type") == "array"
        parameters.append(
            OpenApiParameter(
                name, plain, OpenApiParameter.QUERY, required, text, explode=True if many else None
            )
        )
    return parameters


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove null from a parameter's types. Clients omit the parameter instead."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"]
    plain = {**schema, **kinds[0]} if len(kinds) == 1 else dict(schema)
    if len(kinds) == 1:
        plain.pop("anyOf", None)
    if plain.get("default") is None:
        plain.pop("default", None)
    return plain


class OpenApiDocument(SpectacularAPIView):
    """View that serves the OpenAPI document. The view is public, because the document contains no data."""

    permission_classes = [AllowAny]
    authentication_classes = []


class SwaggerPage(SpectacularSwaggerSplitView):
    """Swagger UI without inline scripts and styles, which the content security policy forbids."""

    template_name = "api/docs.html"
    permission_classes = [AllowAny]
    authentication_classes = []
    url_name = "api:schema"
