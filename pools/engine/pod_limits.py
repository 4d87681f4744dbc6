"""Derive the resource limits of pods from the workload's document and the pool's defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, ValidationError

from berth.core.errors import Invalid
from berth.core.problems import Problem, format_value
from berth.core.spec.parsing.findings import convert_errors
from berth.core.spec.roles import Document, RoleSpec
from berth.core.spec.values.quantities import (
    CPU_LIMIT_MIN,
    MEMORY_LIMIT_MIN_MIB,
    Cores,
    Mebibytes,
    cpu_limit_problem,
    memory_limit_problem,
    to_thousandths,
)
from berth.core.values.amounts import MILLI

FIELD = "default_limits"


class DefaultLimits(Document):
    """Default limits for roles that set no limits.

    With `memory_from_request` or `cpu_from_request`, a role's request is also its limit. Otherwise, the limit
    is `memory_mib` or `cpu`, but never less than the request.
    """

    memory_from_request: bool = True
    memory_mib: Annotated[Mebibytes | None, Field(description="In MiB, or with a unit.")] = None
    cpu_from_request: bool = False
    cpu: Annotated[Cores | None, Field(description="In cores.")] = None


class LimitSource(StrEnum):
    NONE = ""  # no limit
    DOCUMENT = "document"
    REQUEST = "request"  # the pool uses the role's request as its limit
    POOL = "pool"  # the pool's default limit


@dataclass(frozen=True, slots=True)
class PodLimits:
    """Resource limits of one pod. Memory is in MiB, and CPU in thousandths of a core. 0 means no limit."""

    memory_mib: int = 0
    memory_source: LimitSource = LimitSource.NONE
    cpu_milli: int = 0
    cpu_source: LimitSource = LimitSource.NONE

    def to_pod_columns(self) -> dict[str, Any]:
        """Return the limits in the format of a pod's database row."""
        return {
            "memory_mib": self.memory_mib, "memory_source": self.memory_source.value,
            "cpu_milli": self.cpu_milli, "cpu_source": self.cpu_source.value,
        }  # fmt: skip


def normalize_default_limits(values: object) -> dict[str, Any]:
    """Return the default limits in the stored format, with every key. Raises Invalid."""
    if not isinstance(values, Mapping):
        allowed = "a mapping with the keys " + ", ".join(DefaultLimits.model_fields)
        raise Invalid([Problem(FIELD, "is not a mapping", format_value(values), allowed)])
    try:
        limits = DefaultLimits.model_validate(dict(values))
    except ValidationError as error:
        problems = convert_errors(error, DefaultLimits)
        raise Invalid([Problem(f"{FIELD}.{one.path}", one.message, one.received, one.allowed)
                       for one in problems]) from None  # fmt: skip
    checked = [
        memory_limit_problem(f"{FIELD}.memory_mib", limits.memory_mib),
        cpu_limit_problem(f"{FIELD}.cpu", limits.cpu),
    ]
    if problems := [problem for problem in checked if problem is not None]:
        raise Invalid(problems)
    return limits.model_dump()


def resolve_limits(role: RoleSpec, defaults: Mapping[str, Any]) -> PodLimits:
    """Return the limits for the role's pods. `defaults` are the pool's default limits as stored."""
    policy = DefaultLimits.model_validate(dict(defaults))
    memory, memory_source = _resolve_limit(
        role.limit.memory_mib, role.memory_mib, policy.memory_from_request, policy.memory_mib,
        MEMORY_LIMIT_MIN_MIB,
    )  # fmt: skip
    cpu, cpu_source = _resolve_limit(
        role.limit.cpu, role.cpu, policy.cpu_from_request, policy.cpu, CPU_LIMIT_MIN
    )
    return PodLimits(int(memory), memory_source, to_thousandths(cpu), cpu_source)


def limits_in_api_units(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod's stored limits in MiB and cores, or None where there is no limit."""
    cpu_milli = stored.get("cpu_milli")
    return {
        "memory_mib": stored.get("memory_mib") or None,
        "memory_source": stored.get("memory_source") or None,
        "cpu": cpu_milli / MILLI if cpu_milli else None,
        "cpu_source": stored.get("cpu_source") or None,
    }


def _resolve_limit(
    declared: float | None, requested: float, from_request: bool, default: float | None, least: float
) -> tuple[float, LimitSource]:
    """Return a limit and its source. If the limit comes from the request, it is at least `least`."""
    if declared is not None:
        return declared, LimitSource.DOCUMENT
    if requested and from_request:
        return max(requested, least), LimitSource.REQUEST
    if default is not None:
        return max(requested, default), LimitSource.POOL
    return 0, LimitSource.NONE
