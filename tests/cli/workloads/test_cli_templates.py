"""Tests for `berth template` and `berth submit --template`."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.terminal import Terminal
from tests.client.stub_server import HERE, StubServer, page, problem, workload

TEXT = "# the night's run\ncommand: train\nroles: [{replicas: 2, gpu: 1}]\n"
DOCUMENT = {"name": "nightly", "project": "vision", "command": "train", "roles": [{"replicas": 2, "gpu": 1}]}
NOT_FOUND = problem(404, code="not-found", detail="Project vision has no template named 'x'.")


def template(version: int = 1, **values: Any) -> httpx.Response:
    fields = {
        "name": "nightly", "project": "vision", "description": "every night", "kind": "training",
        "created_by": "dave", "changed_by": "dave", "changed_at": "2026-06-01T00:00:00Z", "version": version,
        "text": TEXT, "document": DOCUMENT, **values,
    }  # fmt: skip
    return httpx.Response(200, json=fields, headers={"ETag": f'"{version}"'})


def test_templates_are_listed_and_shown(terminal: Terminal) -> None:
    result = terminal.run(
        "template", "list", "-p", "vision", server=(server := StubServer(page([template().json()])))
    )
    assert result.output.splitlines()[1].split(maxsplit=4) == [
        "vision/nightly", "training", "dave", "2026-06-01", "every night",
    ]  # fmt: skip
    assert "project=vision" in server.calls[0]
    result = terminal.run("template", "show", "vision/nightly", server=(server := StubServer(template())))
    assert result.output == TEXT
    assert server.calls == ["GET /api/v1/projects/vision/templates/nightly"]
    result = terminal.run(
        "template", "show", "nightly", "-p", "vision", "-o", "json", server=StubServer(template())
    )
    assert json.loads(result.output)["document"] == DOCUMENT


def test_template_save_command_creates_a_template_and_later_edits_it(
    terminal: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(TEXT)
    saved = ("template", "set", "vision/nightly", "-f", str(file), "--description", "every night")
    result = terminal.run(*saved, server=(server := StubServer(NOT_FOUND, template())))
    assert (result.exit_code, result.output) == (0, "Template vision/nightly saved.\n")
    assert server.requests[1].headers["If-None-Match"] == "*"
    assert json.loads(server.requests[1].content) == {"text": TEXT, "description": "every night"}
    result = terminal.run(*saved[:5], server=(server := StubServer(template(7), template(7), template(8))))
    assert server.requests[2].headers["If-Match"] == '"7"'
    assert json.loads(server.requests[2].content)["description"] == "every night", (
        "the description stays unless it is set"
    )
    conflict = StubServer(
        template(7), template(7), problem(412, code="precondition-failed", detail="Too late.")
    )
    assert terminal.run(*saved, server=conflict).exit_code == 5


def test_template_from_a_workload_omits_its_name_and_project(terminal: Terminal) -> None:
    spec = {"name": "train", "project": "vision", "command": "a", "roles": [{"replicas": 1}]}
    stored = httpx.Response(200, json=workload("train", spec=spec))
    server = StubServer(page([workload("train")]), stored, NOT_FOUND, template())
    result = terminal.run("template", "set", "vision/t", "--workload", "train", server=server)
    assert result.exit_code == 0, result.output
    saved = json.loads(server.requests[-1].content)["document"]
    assert saved == {"command": "a", "roles": [{"replicas": 1}]}


def test_template_delete_command_sends_the_version_that_was_read(terminal: Terminal) -> None:
    server = StubServer(template(3), httpx.Response(204))
    result = terminal.run("template", "delete", "vision/nightly", server=server)
    assert result.output == "vision/nightly deleted\n"
    assert server.requests[1].headers["If-Match"] == '"3"'


def test_template_delete_command_names_the_schedules_that_use_the_template(terminal: Terminal) -> None:
    detail = "Schedule nightly uses this template. Edit or delete the schedule first."
    server = StubServer(template(3), problem(409, code="conflict", detail=detail))
    result = terminal.run("template", "delete", "vision/nightly", server=server)
    assert result.exit_code == 5
    assert detail in result.output


def test_set_option_changes_values_of_a_template(terminal: Terminal) -> None:
    server = StubServer(template(), httpx.Response(201, json=workload("run-7")))
    result = terminal.run(
        "submit", "--template", "vision/nightly", "-n", "run-7", "--set", "roles[0].gpu=0.5",
        "--set", "env.EPOCHS=5", "--set", "priority=high", server=server,
    )  # fmt: skip
    assert (result.exit_code, result.output) == (0, "vision/run-7 submitted\n")
    assert json.loads(server.requests[1].content) == {
        **DOCUMENT, "name": "run-7", "priority": "high", "env": {"EPOCHS": "5"},
        "roles": [{"replicas": 2, "gpu": 0.5}],
    }  # fmt: skip


def test_set_option_changes_values_of_a_file(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("name: a\ncommand: train\nroles: [{replicas: 2}]\n")
    result = terminal.run("submit", "-f", str(file), "--set", "roles[0].replicas=9", "--print", "-o", "json")
    assert json.loads(result.output)["roles"] == [{"replicas": 9}]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--template", "vision/nightly", "--set", "gpu"),
            "--set: is not a valid setting; received 'gpu'; allowed:",
        ),
        (
            ("--template", "vision/nightly", "--set", "roles[7].gpu=1"),
            "--set: the document does not contain 7. Check the path.",
        ),
        (("--template", "vision/nightly", "--set", "roles[0].gpu=1.5"), "roles[0].gpu: a fraction"),
        (("--template", "vision/nightly", "--gpu", "1"), "--template cannot be combined with --gpu"),
        (("--template", "vision/nightly", "-f", "x.yaml"), "--template and --file cannot be combined"),
        (("--template", "nightly"), "--project is missing. Specify a project, or PROJECT/nightly."),
        (("--set", "a=1", "-n", "x", "--", "run"), "--set requires --template or --file"),
    ],
)
def test_invalid_template_option_prints_a_one_line_error(
    terminal: Terminal, arguments: tuple[str, ...], words: str
) -> None:
    result = terminal.run("submit", *arguments, server=StubServer(template()))
    assert (result.exit_code, words in result.output) == (2, True), result.output


def test_template_save_command_requires_a_file_or_a_workload(terminal: Terminal) -> None:
    assert terminal.run("template", "set", "vision/x").exit_code == 2
    assert HERE.project == ""


async def _template_calls(server: StubServer) -> list[str]:
    from berth.client.aio.client import AsyncClient

    client = AsyncClient(HERE, http=httpx.MockTransport(server.handle_request))
    async with client:
        handles = [template.handle async for template in client.templates.list("vision")]
        one = await client.templates.get("vision", "nightly")
        made = await client.templates.create("vision", "b", one.document)
        changed = await client.templates.edit("vision", "b", TEXT, description="x")
        await client.templates.delete("vision", "b")
    return [*handles, made.name, changed.name]


def test_async_client_manages_templates() -> None:
    import asyncio

    server = StubServer(
        page([template().json()]), template(), template(), template(2), template(3), template(3),
        httpx.Response(204),
    )  # fmt: skip
    assert asyncio.run(_template_calls(server)) == ["vision/nightly", "nightly", "nightly"]
    methods = [request.method for request in server.requests]
    assert methods == ["GET", "GET", "PUT", "GET", "PUT", "GET", "DELETE"]
    assert server.requests[4].headers["If-Match"] == '"2"'
    assert server.requests[6].headers["If-Match"] == '"3"'
