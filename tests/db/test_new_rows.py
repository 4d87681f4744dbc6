"""Tests for creating rows without calling the constructor of their model."""

import uuid
from typing import Any

import pytest
from django.db.models import Model
from django.db.models.expressions import DatabaseDefault

from berth.db.writes.new_rows import new_row
from projects.models import Audit, Event, Pod, Workload, WorkloadRole


def values(row: Model) -> dict[str, Any]:
    columns = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    return {
        name: type(value) if isinstance(value, DatabaseDefault) else value for name, value in columns.items()
    }


@pytest.mark.parametrize("model", [Audit, Event, Pod, Workload, WorkloadRole])
def test_new_row_has_the_defaults_of_its_model(model: type[Model]) -> None:
    pk = {"pk": uuid.UUID(int=1)} if model in (Workload, Pod) else {}
    expected, row = model(**pk), new_row(model)
    row.pk = expected.pk
    assert values(row) == values(expected)
    assert row._state.adding


def test_new_row_has_the_specified_values() -> None:
    workload, labels = uuid.uuid4(), {"team": "a"}
    row = new_row(Workload, id=workload, name="train", project_id=3, labels=labels)
    assert (row.pk, row.name, row.project_id, row.labels) == (workload, "train", 3, labels)


def test_new_rows_do_not_share_mutable_defaults() -> None:
    first, second = new_row(Event), new_row(Event)
    first.data["key"] = 1
    assert second.data == {}


def test_unknown_column_raises_an_error() -> None:
    with pytest.raises(TypeError, match="Workload has no column named project"):
        new_row(Workload, project=None)
