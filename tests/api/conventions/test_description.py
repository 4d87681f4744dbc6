"""Tests for the OpenAPI description and its documentation page."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import Client
from django.urls import get_resolver
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel

from berth.client import generate, model_generator
from berth.server.api.endpoint_list import render_endpoints
from berth.server.api.requests import Body
from berth.server.api.responses import ResponseModel

ROOT = Path(__file__).resolve().parents[3]


def test_api_description_is_valid_openapi(openapi_description: dict[str, Any]) -> None:
    assert openapi_description["openapi"] == "3.1.0"
    OpenAPIV31SpecValidator(openapi_description).validate()


def test_documentation_lists_every_endpoint(openapi_description: dict[str, Any]) -> None:
    # If this fails, run: python -m berth.server.api.endpoint_list > docs/endpoints.md
    assert (ROOT / "docs" / "endpoints.md").read_text() == render_endpoints(openapi_description)


def test_every_operation_has_a_summary_and_a_unique_id(openapi_description: dict[str, Any]) -> None:
    operations = [
        operation
        for path in openapi_description["paths"].values()
        for name, operation in path.items()
        if name in ("get", "post", "put", "patch", "delete")
    ]
    assert len(operations) > 50
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(operation["summary"] for operation in operations)
    assert all("default" in operation["responses"] for operation in operations)


@pytest.mark.heavy
def test_client_models_match_the_api_description(
    openapi_description: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # To update the models, run: python -m berth.client.generate
    components = openapi_description["components"]["schemas"]
    monkeypatch.setattr(model_generator, "read_components", lambda: components)
    current = {
        file.name: file.read_text()
        for file in (generate.FOLDER / "models").glob("*.py")
        if file.name not in model_generator.HAND_WRITTEN
    }
    assert current == generate.generate_models()


def test_fake_providers_and_runtimes_are_not_documented(openapi_description: dict[str, Any]) -> None:
    for body in ("CreatePoolBody", "PoolValues"):
        properties = openapi_description["components"]["schemas"][body]["properties"]
        assert properties["provider"]["enum"] == ["local", "static", "aws", "kubernetes", "ssh", "slurm"]
        assert properties["runtime"]["enum"] == ["local", "ray", "kubernetes"]


def test_api_documentation_loads_no_resources_from_other_hosts(db: None) -> None:
    page = Client().get("/api/v1/docs")
    script = Client().get("/api/v1/docs?script=")
    assert (page.status_code, script.status_code) == (200, 200)
    text = page.content.decode() + script.content.decode()
    assert not re.findall(r"(?:https?:)?//(?!127\.0\.0\.1|localhost|testserver)[\w.-]+\.\w+", text)
    assert '"validatorUrl": null' in text
    for address in re.findall(r'(?:src|href)="/static/([^"]+)"', text):
        assert finders.find(address), address


def test_api_documentation_has_no_inline_script(db: None) -> None:
    page = Client().get("/api/v1/docs").content.decode()
    bodies = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    assert [body for body in bodies if body.strip()] == []


def test_schema_names_are_unique() -> None:
    # OpenAPI would merge two schemas with the same name.
    get_resolver().url_patterns  # noqa: B018, imports every view
    modules: dict[str, set[str]] = {}
    for shape in (*submodels(ResponseModel), *submodels(Body)):
        modules.setdefault(shape.__name__, set()).add(shape.__module__)
    assert {name: sorted(sources) for name, sources in modules.items() if len(sources) > 1} == {}


def submodels(model: type[BaseModel]) -> set[type[BaseModel]]:
    return {shape for child in model.__subclasses__() for shape in (child, *submodels(child))}
