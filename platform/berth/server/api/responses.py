"""Base models for REST responses, their JSON renderer, and amounts in whole units."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, WithJsonSchema
from pydantic_core import to_json
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response

from berth.core.values.amounts import MILLI

# An exact number, serialized as a JSON string.
DecimalText = Annotated[Decimal, WithJsonSchema({"type": "string", "format": "decimal"})]


def _record_parent(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Record the model's parent in the OpenAPI schema, for the Python client.

    A parent whose name begins with an underscore is not recorded, because it only shares fields.
    """
    parent = model.__base__
    if parent not in (None, BaseModel, ResponseModel) and not parent.__name__.startswith("_"):
        schema["x-extends"] = parent.__name__


class ResponseModel(BaseModel):
    """Base model for response bodies. Responses are validated, so that they match the OpenAPI schema."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, from_attributes=True, json_schema_extra=_record_parent
    )

    @classmethod
    def from_row(cls, row: object, **values: Any) -> Self:
        """Return a response with `values`. All other fields are copied from the row's attributes."""
        return cls(**{name: getattr(row, name) for name in cls.model_fields if name not in values}, **values)


class Amounts(ResponseModel):
    """GPUs, CPU cores and MiB of memory. Null means unlimited."""

    gpu: float | None
    cpu: float | None
    memory_mib: int | None


class ProblemResponse(BaseModel):
    """Problem document (RFC 9457). `errors` lists every invalid value."""

    class InvalidValue(BaseModel):
        """Invalid value in a request."""

        path: str
        message: str
        received: str
        allowed: str

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list[InvalidValue] | None = None
    retry_after: int | None = None
    allowed: list[str] | None = None


class JsonRenderer(BaseRenderer):
    """JSON renderer for models, UTC times and UUIDs, several times faster than the standard library."""

    media_type = "application/json"
    format = "json"
    charset = None
    render_style = "binary"

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return b"" if data is None else to_json(data, inf_nan_mode="null")


def created_response(body: Any, location: str, **headers: str) -> Response:
    return Response(body, 201, headers={"Location": location, **headers})


def no_content() -> Response:
    return Response(status=204)


def from_milli(milli: int | None) -> float | None:
    """Convert thousandths to units: 8000 to 8, and 500 to 0.5. None remains None."""
    if milli is None:
        return None
    return milli // MILLI if milli % MILLI == 0 else milli / MILLI


def to_amounts(milli_gpu: int | None, milli_cpu: int | None, memory_mib: int | None) -> Amounts:
    return Amounts(gpu=from_milli(milli_gpu), cpu=from_milli(milli_cpu), memory_mib=memory_mib)
