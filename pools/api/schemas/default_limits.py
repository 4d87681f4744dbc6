"""REST models for pools' default resource limits."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from berth.core.spec.values.quantities import CPU_LIMIT_MIN, MEMORY_LIMIT_MIN_MIB
from berth.server.api.responses import ResponseModel

# The limit rules validate this value and name the invalid field, such as default_limits.memory_mib.
DefaultLimitsValues = Annotated[
    Any,
    Field(
        description="Limits for roles without limits of their own. With memory_from_request (default) "
        "or cpu_from_request, the request is the limit; memory_mib and cpu limit all other roles. Omitted "
        "keys get their defaults."
    ),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "memory_from_request": {"type": "boolean"},
                "memory_mib": {"type": ["integer", "null"], "minimum": MEMORY_LIMIT_MIN_MIB},
                "cpu_from_request": {"type": "boolean"},
                "cpu": {"type": ["number", "null"], "minimum": CPU_LIMIT_MIN},
            },
            "additionalProperties": False,
        }
    ),
]


class DefaultLimitsResponse(ResponseModel):
    """Default limits for roles without limits of their own. Null means unlimited."""

    memory_from_request: bool
    memory_mib: int | None
    cpu_from_request: bool
    cpu: float | None
