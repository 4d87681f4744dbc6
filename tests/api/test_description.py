"""The OpenAPI document matches the API and loads nothing from other hosts."""

import json
import re
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import get_resolver
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel

from berth.server.api.requests import Body
from berth.server.api.responses import Answer


@pytest.fixture
def description(db: None) -> dict[str, object]:
    answer = Client().get("/api/v1/schema", headers={"Accept": "application/vnd.oai.openapi+json"})
    assert answer.status_code == 200
    found: dict[str, object] = json.loads(answer.content)
    return found


def test_the_description_is_valid_openapi(description: dict[str, object]) -> None:
    assert description["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(description).validate()


def test_every_operation_says_what_it_does_and_has_its_own_name(description: dict[str, object]) -> None:
    operations = [
        operation
        for path in description["paths"].values()  # type: ignore[attr-defined]
        for name, operation in path.items()
        if name in ("get", "post", "put", "patch", "delete")
    ]
    assert len(operations) > 50
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(operation["summary"] for operation in operations)
    assert all("default" in operation["responses"] for operation in operations)


def test_fakes_are_no_choice_of_who_makes_a_pool(description: dict[str, Any]) -> None:
    for body in ("NewPool", "PoolValues"):
        given = description["components"]["schemas"][body]["properties"]
        assert given["provider"]["enum"] == ["local", "static", "aws"]
        assert given["runtime"]["enum"] == ["local", "ray"]


def test_the_docs_page_asks_no_other_host(db: None) -> None:
    page = Client().get("/api/v1/docs")
    script = Client().get("/api/v1/docs?script=")
    assert (page.status_code, script.status_code) == (200, 200)
    text = page.content.decode() + script.content.decode()
    assert not re.findall(r"(?:https?:)?//(?!127\.0\.0\.1|localhost|testserver)[\w.-]+\.\w+", text)
    assert '"validatorUrl": null' in text
    for address in re.findall(r'(?:src|href)="/static/([^"]+)"', text):
        assert finders.find(address), address


def test_the_docs_page_carries_no_script_of_its_own(db: None) -> None:
    page = Client().get("/api/v1/docs").content.decode()
    bodies = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    assert [body for body in bodies if body.strip()] == []


def test_no_two_shapes_share_a_name() -> None:
    """The description knows them by name: one would be described as the other."""
    get_resolver().url_patterns  # noqa: B018, loads every door
    modules: dict[str, set[str]] = {}
    for shape in (*shapes_of(Answer), *shapes_of(Body)):
        modules.setdefault(shape.__name__, set()).add(shape.__module__)
    assert {name: sorted(where) for name, where in modules.items() if len(where) > 1} == {}


def shapes_of(model: type[BaseModel]) -> set[type[BaseModel]]:
    return {shape for child in model.__subclasses__() for shape in (child, *shapes_of(child))}
