"""Tests for the cache of parsed workload documents."""

from typing import Any

import pytest

from projects.models import Workload
from scheduler.loop.observe import specs
from scheduler.loop.observe.specs import ParsedSpec, SpecCache
from tests.scheduler.stage import Stage


def read_all(cache: SpecCache) -> dict[str, specs.ParsedSpec]:
    rows = list(Workload.objects.order_by("name"))
    parsed = cache.get_all({row.pk: row.edits for row in rows})
    return {row.name: parsed[row.pk] for row in rows}


def test_documents_that_differ_only_in_name_are_validated_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two", "three"):
        stage.submit(name, priority=60)
    stage.submit("four", priority=70)
    validated: list[object] = []
    parse = specs.parse_spec

    def record_and_parse(document: dict[str, Any]) -> ParsedSpec:
        validated.append(document)
        return parse(document)

    monkeypatch.setattr(specs, "parse_spec", record_and_parse)
    by_name = read_all(SpecCache())
    assert len(validated) == 2
    for row in Workload.objects.all():
        assert by_name[row.name] == parse(row.spec)


def test_stored_document_with_an_invalid_name_is_reported_as_unreadable(stage: Stage) -> None:
    for name in ("one", "two"):
        stage.submit(name)
    row = Workload.objects.get(name="two")
    Workload.objects.filter(pk=row.pk).update(spec={**row.spec, "name": "Not A Name"})
    by_name = read_all(SpecCache())
    assert by_name["one"].spec is not None
    assert by_name["two"].spec is None
    assert "name" in by_name["two"].error


@pytest.mark.parametrize("document", [[], "text", {}, 5])
def test_stored_value_that_is_not_a_workload_document_is_reported_as_unreadable(
    stage: Stage, document: object
) -> None:
    row = stage.submit("one")
    Workload.objects.filter(pk=row.pk).update(spec=document)
    assert read_all(SpecCache())["one"] == specs.parse_spec(document)


def test_workload_may_depend_on_another_workload_with_the_same_document(stage: Stage) -> None:
    stage.submit("first", after=[{"workload": "second"}])
    stage.submit("second", after=[{"workload": "second-of-all"}])
    row = Workload.objects.get(name="second")
    Workload.objects.filter(pk=row.pk).update(spec={**row.spec, "after": [{"workload": "second"}]})
    by_name = read_all(SpecCache())
    assert by_name["first"].spec is not None
    assert by_name["second"].spec is None
