"""Tests for pod limits and for the default limits of pools."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.errors import Invalid
from berth.core.spec import SpecError, parse_workload
from berth.core.spec.roles import RoleSpec
from berth.core.spec.values.quantities import CPU_LIMIT_MIN, MEMORY_LIMIT_MIN_MIB
from pools import services
from pools.engine.pod_limits import limits_in_api_units, normalize_default_limits, resolve_limits
from tests.pools.stage import SYSTEM, pool


def limits(role: dict[str, Any], **defaults: object) -> tuple[object, ...]:
    """Return memory in MiB and CPU in cores, each with its source."""
    stored = resolve_limits(RoleSpec(**role), normalize_default_limits(defaults)).to_pod_columns()
    return tuple(limits_in_api_units(stored).values())


def test_memory_limit_defaults_to_the_request_unless_the_pool_sets_another_default() -> None:
    role = {"memory_mib": 512, "cpu": 2}
    assert limits(role) == (512, "request", None, None)
    assert limits(role, memory_from_request=False) == (None, None, None, None)
    assert limits(role, cpu_from_request=True) == (512, "request", 2, "request")


def test_declared_limit_takes_precedence_over_defaults() -> None:
    role = {"memory_mib": 512, "limit": {"memory_mib": 1024, "cpu": 4}}
    expected = (1024, "document", 4, "document")
    assert limits(role) == limits(role, memory_mib=100, cpu=1, cpu_from_request=True) == expected


def test_default_limit_of_a_pool_applies_to_roles_without_a_request() -> None:
    assert limits({}) == (None, None, None, None)
    assert limits({}, memory_mib="4Gi", cpu=0.5) == (4096, "pool", 0.5, "pool")
    assert limits({"memory_mib": 64}, memory_mib=4096) == (64, "request", None, None)


def test_default_limit_is_never_below_the_request() -> None:
    role = {"memory_mib": 8192, "cpu": 3}
    defaults = {"memory_from_request": False, "memory_mib": 4096, "cpu": 1}
    assert limits(role, **defaults) == (8192, "pool", 3, "pool")


def test_limit_derived_from_a_tiny_request_is_sufficient_to_start_a_program() -> None:
    assert limits({"memory_mib": 1, "cpu": 0.001}, cpu_from_request=True) == (
        MEMORY_LIMIT_MIN_MIB, "request", CPU_LIMIT_MIN, "request",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([], "default_limits: is not a mapping"),
        ({"memory": 1}, "default_limits.memory: unknown key"),
        ({"memory_mib": 15}, "default_limits.memory_mib: is less than a shell or Python needs to start"),
        ({"memory_mib": -1}, "default_limits.memory_mib: is not a valid amount of memory"),
        ({"memory_mib": 2**31}, "default_limits.memory_mib: is not a valid amount of memory"),
        ({"memory_mib": "many"}, "default_limits.memory_mib: is not a valid quantity"),
        ({"cpu": 0.001}, "default_limits.cpu: is less than the kernel can allot"),
        ({"cpu": float("nan")}, "default_limits.cpu: must be a finite number"),
        ({"cpu": 10**9}, "default_limits.cpu: is not a valid number of CPU cores"),
        ({"memory_from_request": 1}, "default_limits.memory_from_request: must be true or false"),
    ],
)
def test_invalid_default_limits_are_rejected(values: object, problem: str) -> None:
    with pytest.raises(Invalid) as error:
        normalize_default_limits(values)
    assert str(error.value.problems[0]).startswith(problem)


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        ({"memory_mib": 0}, "roles[0].limit.memory_mib: is less than a shell or Python needs to start"),
        ({"memory_mib": 15}, "received 15 MiB; allowed: 16 MiB or more, or unlimited"),
        ({"cpu": 0}, "roles[0].limit.cpu: is less than the kernel can allot"),
        ({"cpu": 0.009}, "received 0.009 cores; allowed: 0.01 cores or more, or unlimited"),
        ({"memory_mib": -1}, "roles[0].limit.memory_mib: is not a valid amount of memory"),
        ({"memory_mib": 10**12}, "roles[0].limit.memory_mib: is not a valid amount of memory"),
        ({"cpu": float("nan")}, "roles[0].limit.cpu: must be a finite number"),
        ({"cpu": float("inf")}, "roles[0].limit.cpu: must be a finite number"),
    ],
)
def test_limits_too_low_to_start_any_program_are_rejected(limit: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpecError, match="limit") as error:
        parse_workload({"name": "a", "command": "true", "roles": [{"gpu": 1, "limit": limit}]})
    assert problem in str(error.value)


@given(
    requested=st.integers(0, 10_000), from_request=st.booleans(),
    default=st.none() | st.integers(MEMORY_LIMIT_MIN_MIB, 10_000),
    declared=st.none() | st.integers(10_000, 20_000),
)  # fmt: skip
def test_limit_is_never_below_the_request(
    requested: int, from_request: bool, default: int | None, declared: int | None
) -> None:
    role = {"memory_mib": requested, "limit": {"memory_mib": declared}}
    memory, source, _, _ = limits(role, memory_from_request=from_request, memory_mib=default)
    assert memory is None or int(str(memory)) >= max(requested, MEMORY_LIMIT_MIN_MIB)
    assert (memory is None) == (source is None)
    assert (source == "document") == (declared is not None)


@pytest.mark.django_db
def test_omitted_default_limits_of_a_pool_are_reset() -> None:
    made = pool()
    changes = {"default_limits": {"memory_mib": 4096, "cpu": 2}}
    services.edit_pool(actor=SYSTEM, pool=made, changes=changes)
    edited = services.edit_pool(actor=SYSTEM, pool=made, changes={"default_limits": {"cpu": 1}})
    assert edited.default_limits == {
        "memory_from_request": True, "memory_mib": None, "cpu_from_request": False, "cpu": 1,
    }  # fmt: skip
