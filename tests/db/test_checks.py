"""Tests for check constraints that are validated with one query."""

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import CheckConstraint
from pytest_django import DjangoAssertNumQueries

from pools.models import NodePool

pytestmark = pytest.mark.django_db

BROKEN: dict[str, dict[str, Any]] = {
    "pool_fixed_has_a_node": {"nodes_min": 0, "nodes_max": None},
    "pool_max_not_below_min": {"nodes_min": 3, "nodes_max": 2},
    "pool_cpu_positive": {"cpu_milli": 0},
    "pool_known_placement": {"node_placement": "random"},
    "pool_price_not_negative": {"price_per_gpu_hour": -1},
}


def pool(**values: Any) -> NodePool:
    return NodePool(name="metal", **{"nodes_min": 1, "nodes_desired": 1, "gpus_per_node": 8, **values})


def test_valid_row_is_checked_in_one_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    with django_assert_num_queries(3):  # this includes two queries for a savepoint
        pool().validate_constraints()


@pytest.mark.parametrize("name", BROKEN)
def test_validation_rejects_rows_that_violate_a_check_constraint(name: str) -> None:
    assert name in {each.name for each in NodePool._meta.constraints if isinstance(each, CheckConstraint)}
    row = pool(**BROKEN[name])
    with pytest.raises(ValidationError, match=name):
        row.validate_constraints()
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save()


def test_validation_error_lists_all_violated_constraints() -> None:
    with pytest.raises(ValidationError) as rejection:
        pool(cpu_milli=0, memory_mib=0).validate_constraints()
    assert "pool_cpu_positive" in str(rejection.value)
    assert "pool_memory_positive" in str(rejection.value)


def test_constraints_with_an_excluded_field_are_skipped() -> None:
    pool(cpu_milli=0).validate_constraints(exclude={"cpu_milli"})
    with pytest.raises(ValidationError, match="pool_memory_positive"):
        pool(cpu_milli=0, memory_mib=0).validate_constraints(exclude={"cpu_milli"})
