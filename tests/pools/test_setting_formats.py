"""Tests that problems with provider settings are described in words."""

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import TypeAdapter, ValidationError

from pools.providers import formats
from pools.providers.formats import TextFormat
from pools.providers.settings import MODELS

ALL = {name: each for name, each in vars(formats).items() if isinstance(each, TextFormat)}


def patterns_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(pattern := schema.get("pattern"), str):
            yield pattern
        for inner in schema.values():
            yield from patterns_in(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from patterns_in(inner)


@pytest.mark.parametrize("provider", sorted(MODELS))
def test_every_provider_setting_pattern_has_a_description(provider: str) -> None:
    patterns = set(patterns_in(MODELS[provider].model_json_schema()))
    assert patterns
    assert patterns <= {each.pattern for each in ALL.values()}


@pytest.mark.parametrize("name", sorted(ALL))
def test_format_description_contains_a_valid_example(name: str) -> None:
    each = ALL[name]
    adapter: TypeAdapter[str] = TypeAdapter(Annotated[str, each])
    with pytest.raises(ValidationError) as raised:
        adapter.validate_python("\x01 no")
    (details,) = raised.value.errors()
    assert details["msg"] == f"is not a valid {each.noun}"
    assert details["ctx"]["allowed"] == each.allowed
    if " such as " in each.allowed:
        example = each.allowed.partition(" such as ")[2].partition(",")[0].partition(" or ")[0]
        assert adapter.validate_python(example) == example
