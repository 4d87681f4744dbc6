"""Validate recorded calls against the EC2 service model."""

from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

from pools.providers.aws.clients import model_loader

KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "long": (int,), "boolean": (bool,), "double": (float, int),
    "float": (float, int), "timestamp": (datetime, str), "blob": (bytes,),
}  # fmt: skip


def violations(service: str, operation: str, params: dict[str, Any]) -> Iterator[str]:
    shape = _model(service).operation_model(operation).input_shape
    yield from _violations(shape, params, f"{service}.{operation}")


def _violations(shape: Any, value: Any, path: str) -> Iterator[str]:
    match shape.type_name:
        case "structure":
            for name in shape.required_members:
                if name not in value:
                    yield f"{path}.{name} is missing"
            for name, inner in value.items():
                if name not in shape.members:
                    yield f"{path}.{name} is not a known parameter"
                else:
                    yield from _violations(shape.members[name], inner, f"{path}.{name}")
        case "list":
            yield from _too_many(shape, value, path)
            for index, inner in enumerate(value):
                yield from _violations(shape.member, inner, f"{path}[{index}]")
        case kind:
            if not isinstance(value, KINDS[kind]):
                yield f"{path} is {type(value).__name__}, not {kind}"
            elif getattr(shape, "enum", None) and value not in shape.enum:
                yield f"{path} is {value!r}, which is not an allowed value"
            elif kind == "string":
                yield from _too_many(shape, value, path)


def _too_many(shape: Any, value: Any, path: str) -> Iterator[str]:
    least, most = shape.metadata.get("min", 0), shape.metadata.get("max")
    if len(value) < least or (most is not None and len(value) > most):
        yield f"{path} has {len(value)}, allowed {least} to {most}"


@cache
def _model(service: str) -> Any:
    from botocore.model import ServiceModel

    return ServiceModel(model_loader().load_service_model(service, "service-2"), service)
