"""Templates at the command line."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.desk_of_commands import Terminal
from tests.client.desk import HERE, Desk, page, problem, workload

TEXT = "# the night's run\ncommand: train\nroles: [{replicas: 2, gpu: 1}]\n"
DOCUMENT = {"name": "nightly", "project": "vision", "command": "train", "roles": [{"replicas": 2, "gpu": 1}]}
NOT_THERE = problem(404, code="not-found", detail="There is no such template.")


def template(version: int = 1, **values: Any) -> httpx.Response:
    told = {
        "name": "nightly", "project": "vision", "description": "every night", "kind": "training",
        "created_by": "dave", "changed_by": "dave", "changed_at": "2026-06-01T00:00:00Z", "version": version,
        "text": TEXT, "document": DOCUMENT, **values,
    }  # fmt: skip
    return httpx.Response(200, json=told, headers={"ETag": f'"{version}"'})


def test_templates_are_listed_and_shown_as_they_were_written(terminal: Terminal) -> None:
    told = terminal.run("template", "list", "-p", "vision", desk=(desk := Desk(page([template().json()]))))
    assert told.output.splitlines()[1].split(maxsplit=4) == [
        "vision/nightly", "training", "dave", "2026-06-01", "every night",
    ]  # fmt: skip
    assert "project=vision" in desk.asked[0]
    told = terminal.run("template", "show", "vision/nightly", desk=(desk := Desk(template())))
    assert told.output == TEXT
    assert desk.asked == ["GET /api/v1/projects/vision/templates/nightly"]
    told = terminal.run("template", "show", "nightly", "-p", "vision", "-o", "json", desk=Desk(template()))
    assert json.loads(told.output)["document"] == DOCUMENT


def test_a_first_one_is_created_and_a_second_save_changes_it(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "nightly.yaml"
    file.write_text(TEXT)
    saved = ("template", "set", "vision/nightly", "-f", str(file), "--description", "every night")
    told = terminal.run(*saved, desk=(desk := Desk(NOT_THERE, template())))
    assert (told.exit_code, told.output) == (0, "Template vision/nightly saved.\n")
    assert desk.requests[1].headers["If-None-Match"] == "*"
    assert json.loads(desk.requests[1].content) == {"text": TEXT, "description": "every night"}
    told = terminal.run(*saved[:5], desk=(desk := Desk(template(7), template(7), template(8))))
    assert desk.requests[2].headers["If-Match"] == '"7"'
    assert json.loads(desk.requests[2].content)["description"] == "every night", "what is not said stays"
    lost = Desk(template(7), template(7), problem(412, code="precondition-failed", detail="Too late."))
    assert terminal.run(*saved, desk=lost).exit_code == 5


def test_a_workload_s_document_is_kept_without_its_name(terminal: Terminal) -> None:
    spec = {"name": "train", "project": "vision", "command": "a", "roles": [{"replicas": 1}]}
    found = httpx.Response(200, json=workload("train", spec=spec))
    desk = Desk(page([workload("train")]), found, NOT_THERE, template())
    told = terminal.run("template", "set", "vision/t", "--workload", "train", desk=desk)
    assert told.exit_code == 0, told.output
    kept = json.loads(desk.requests[-1].content)["document"]
    assert kept == {"command": "a", "roles": [{"replicas": 1}]}


def test_a_template_is_removed_as_it_was_seen(terminal: Terminal) -> None:
    desk = Desk(template(3), httpx.Response(204))
    told = terminal.run("template", "delete", "vision/nightly", desk=desk)
    assert told.output == "vision/nightly removed\n"
    assert desk.requests[1].headers["If-Match"] == '"3"'


def test_one_begins_with_a_template_and_sets_parts_of_it(terminal: Terminal) -> None:
    desk = Desk(template(), httpx.Response(201, json=workload("run-7")))
    told = terminal.run(
        "submit", "--template", "vision/nightly", "-n", "run-7", "--set", "roles[0].gpu=0.5",
        "--set", "env.EPOCHS=5", "--set", "priority=high", desk=desk,
    )  # fmt: skip
    assert (told.exit_code, told.output) == (0, "vision/run-7 submitted\n")
    assert json.loads(desk.requests[1].content) == {
        **DOCUMENT, "name": "run-7", "priority": "high", "env": {"EPOCHS": "5"},
        "roles": [{"replicas": 2, "gpu": 0.5}],
    }  # fmt: skip


def test_parts_of_a_file_may_be_set_too(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("name: a\ncommand: train\nroles: [{replicas: 2}]\n")
    told = terminal.run("submit", "-f", str(file), "--set", "roles[0].replicas=9", "--print", "-o", "json")
    assert json.loads(told.output)["roles"] == [{"replicas": 9}]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("--template", "vision/nightly", "--set", "gpu"),
            "--set: is not a setting; received 'gpu'; allowed:",
        ),
        (
            ("--template", "vision/nightly", "--set", "roles[7].gpu=1"),
            "--set: the document has no such part: ",
        ),
        (("--template", "vision/nightly", "--set", "roles[0].gpu=1.5"), "roles[0].gpu: a part of a device"),
        (("--template", "vision/nightly", "--gpu", "1"), "--template and --gpu exclude each other"),
        (("--template", "vision/nightly", "-f", "x.yaml"), "--template and --file exclude each other"),
        (("--template", "nightly"), "--project: missing; allowed: a project, or PROJECT/nightly"),
        (("--set", "a=1", "-n", "x", "--", "run"), "--set needs --template"),
    ],
)
def test_what_does_not_fit_is_one_line(terminal: Terminal, arguments: tuple[str, ...], words: str) -> None:
    told = terminal.run("submit", *arguments, desk=Desk(template()))
    assert (told.exit_code, words in told.output) == (2, True), told.output


def test_a_template_needs_a_file_or_a_workload(terminal: Terminal) -> None:
    assert terminal.run("template", "set", "vision/x").exit_code == 2
    assert HERE.project == ""


async def _under_asyncio(desk: Desk) -> list[str]:
    from berth.client.aio.client import AsyncClient

    client = AsyncClient(HERE, http=httpx.MockTransport(desk.handle_request))
    async with client:
        found = [each.handle async for each in client.templates.list("vision")]
        one = await client.templates.get("vision", "nightly")
        made = await client.templates.create("vision", "b", one.document)
        changed = await client.templates.edit("vision", "b", TEXT, description="x")
        await client.templates.delete("vision", "b")
    return [*found, made.name, changed.name]


def test_the_same_is_there_under_asyncio() -> None:
    import asyncio

    desk = Desk(page([template().json()]), template(), template(), template(2), template(3), template(3),
                httpx.Response(204))  # fmt: skip
    assert asyncio.run(_under_asyncio(desk)) == ["vision/nightly", "nightly", "nightly"]
    asked = [request.method for request in desk.requests]
    assert asked == ["GET", "GET", "PUT", "GET", "PUT", "GET", "DELETE"]
    assert desk.requests[4].headers["If-Match"] == '"2"'
    assert desk.requests[6].headers["If-Match"] == '"3"'
