"""Tests for workload templates over REST."""

from typing import Any

import pytest

from projects.models import Audit, Template
from tests.api.conftest import Caller
from tests.cast import Cast

NEW = {"If-None-Match": "*"}
VISION_TEMPLATES = "projects/vision/templates/nightly"
TEXT = "# the night's run\ncommand: train   # all of it\nroles: [{replicas: 2, gpu: 1}]\n"


def save(caller: Caller, path: str = VISION_TEMPLATES, **values: object) -> Any:
    return caller("PUT", path, {"text": TEXT, "description": "every night", **values}, headers=NEW)


def test_template_is_created_read_and_edited_with_an_etag(cast: Cast, dave: Caller) -> None:
    made = save(dave)
    assert made.status_code == 201
    template = made.json()
    assert (template["text"], template["description"], template["created_by"]) == (
        TEXT,
        "every night",
        "dave",
    )
    assert template["document"] == {
        "name": "nightly", "project": "vision", "command": "train", "roles": [{"replicas": 2, "gpu": 1}],
    }  # fmt: skip
    read = dave.get(VISION_TEMPLATES)
    assert read["ETag"] == made["ETag"] == f'"{template["version"]}"'
    assert read.json() == template
    changed = dave(
        "PUT", VISION_TEMPLATES, {"text": TEXT + "priority: 10\n"}, headers={"If-Match": read["ETag"]}
    )
    assert (changed.status_code, changed.json()["document"]["priority"]) == (200, 10)
    assert changed.json()["description"] == ""
    stale = dave("PUT", VISION_TEMPLATES, {"text": TEXT}, headers={"If-Match": read["ETag"]})
    assert stale.status_code == 412
    assert dave("PUT", VISION_TEMPLATES, {"text": TEXT}).status_code == 428
    assert save(dave).status_code == 412
    assert [row.action for row in Audit.objects.filter(object_type="template").order_by("pk")] == [
        "set_template", "set_template",
    ]  # fmt: skip


@pytest.mark.heavy
def test_saving_an_unchanged_template_preserves_its_version(cast: Cast, dave: Caller) -> None:
    tag = save(dave)["ETag"]
    again = dave(
        "PUT", VISION_TEMPLATES, {"text": TEXT, "description": "every night"}, headers={"If-Match": tag}
    )
    assert (again.status_code, again["ETag"]) == (200, tag)
    assert Audit.objects.filter(object_type="template").count() == 1


@pytest.mark.heavy
def test_recreated_template_has_a_new_version(cast: Cast, dave: Caller) -> None:
    tag = save(dave)["ETag"]
    assert dave("DELETE", VISION_TEMPLATES, headers={"If-Match": tag}).status_code == 204
    assert dave.get(VISION_TEMPLATES).status_code == 404
    save(dave)
    assert dave("DELETE", VISION_TEMPLATES, headers={"If-Match": tag}).status_code == 412
    assert Audit.objects.filter(action="delete_template").count() == 1


def test_template_used_by_a_schedule_cannot_be_deleted(cast: Cast, dave: Caller) -> None:
    tag = save(dave)["ETag"]
    for name in ("weekly", "daily"):
        values = {"cron": "0 3 * * *", "template": "nightly"}
        assert dave("PUT", f"projects/vision/schedules/{name}", values, headers=NEW).status_code == 201
    refused = dave("DELETE", VISION_TEMPLATES, headers={"If-Match": tag})
    assert (refused.status_code, refused.json()["schedules"]) == (409, ["daily", "weekly"])
    assert refused.json()["detail"] == (
        "Schedules daily and weekly use this template. Edit or delete these schedules first."
    )
    for name in ("weekly", "daily"):
        assert (
            dave("DELETE", f"projects/vision/schedules/{name}", headers={"If-Match": "*"}).status_code == 204
        )
    assert dave("DELETE", VISION_TEMPLATES, headers={"If-Match": tag}).status_code == 204


@pytest.mark.heavy
def test_json_document_is_stored_as_text(cast: Cast, dave: Caller) -> None:
    document = {"roles": [{"gpu": 1, "replicas": 2, "name": "worker"}], "command": ["a", "b"], "name": "x"}
    made = dave("PUT", VISION_TEMPLATES, {"document": document}, headers=NEW)
    assert made.json()["document"] == {**document, "project": "vision"}
    assert made.json()["text"].startswith("name: x\nroles:\n- name: worker\n  replicas: 2\n")


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"text": "just words"}, "document"),
        ({"text": "a: ["}, "document"),
        ({"text": "&a [*a]"}, "document"),
        ({"text": "command: a\nroles: [{gpu: 1.5}]\n"}, "document.roles[0].gpu"),
        ({"text": "colour: red\nroles: [{}]\n"}, "document.colour"),
        ({"text": TEXT + "project: ads\n"}, "document.project"),
        ({"text": "kind: TrainingJob\n"}, "document.kind"),
        ({"text": TEXT + "image: docker.io/org/torch\n"}, "document.image"),
        ({"text": TEXT + "image: docker.io/org/torch\npools: [later]\n"}, "document.image"),
        ({"text": TEXT + "# " + "x" * 70_000}, "document"),
        ({"text": "command: \x00\n"}, "document"),
        ({"text": TEXT, "description": "x" * 300}, "description"),
        ({"text": TEXT, "description": "a\nb"}, "description"),
        ({}, "document"),
        ({"text": TEXT, "document": {}}, "document"),
        ({"text": 7}, "text"),
        ({"texts": TEXT}, "texts"),
    ],
)
def test_error_names_the_invalid_template_field(
    cast: Cast, dave: Caller, values: dict[str, object], path: str
) -> None:
    answer = dave("PUT", VISION_TEMPLATES, values, headers=NEW)
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, path)
    assert not Template.objects.exists()


def test_invalid_template_name_is_rejected(cast: Cast, dave: Caller) -> None:
    answer = save(dave, "projects/vision/templates/No Name")
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "name")


@pytest.mark.heavy
def test_templates_are_paginated_by_name(cast: Cast, dave: Caller, carol: Caller) -> None:
    for number in range(5):
        save(dave, f"projects/vision/templates/t{number}")
    first = carol.get("projects/vision/templates", limit=3).json()
    rest = carol.get("projects/vision/templates", limit=3, cursor=first["next"]).json()
    assert [item["name"] for item in first["items"] + rest["items"]] == ["t0", "t1", "t2", "t3", "t4"]
    assert "text" not in first["items"][0]
    assert len(carol.get("templates", project="vision").json()["items"]) == 5


def test_former_member_cannot_delete_their_template(cast: Cast, dave: Caller, carol: Caller) -> None:
    tag = save(dave)["ETag"]
    cast.dave.user.memberships.all().delete()
    assert dave("DELETE", VISION_TEMPLATES, headers={"If-Match": tag}).status_code == 404
    assert carol("DELETE", VISION_TEMPLATES, headers={"If-Match": tag}).status_code == 204
