"""Tests for project and pool secrets over REST: users can set, list and delete them but not read them."""

from collections.abc import Callable
from typing import Any

import pytest

from berth.server.api.models import StoredResponse
from pools.models import PoolSecret
from projects.models import Audit, ProjectSecret
from tests.api.conftest import Caller
from tests.cast import Cast

TOKEN = "correct-horse-battery-staple"
PROJECT, POOL = "projects/vision/secrets", "node-pools/local/secrets"
LOGIN = {"registry": "registry.example.org:5000", "username": "berth", "password": TOKEN}


@pytest.fixture
def put(caller: Callable[..., Caller]) -> Callable[..., Any]:
    def send(user: str, path: str, body: Any) -> Any:
        return caller(user)("PUT", path, body)

    return send


def test_secret_is_created_replaced_and_deleted(cast: Cast, caller: Callable[..., Caller], put: Any) -> None:
    for user, place in (("carol", PROJECT), ("alice", POOL)):
        created = put(user, f"{place}/hf-token", {"value": TOKEN})
        assert (created.status_code, created["Location"]) == (201, f"/api/v1/{place}/hf-token")
        replaced = put(user, f"{place}/hf-token", LOGIN)
        assert (replaced.status_code, replaced.json()["kind"]) == (200, "registry")
        assert replaced.json()["registry"] == "registry.example.org:5000"
        again = put(user, f"{place}/hf-token", LOGIN)
        assert again.status_code == 200
        changes = {key for key, value in again.json().items() if value != replaced.json()[key]}
        assert changes == {"updated_at"}, "a repeated request changes nothing else"
        assert [each.json()["version"] for each in (created, replaced, again)] == [1, 2, 2]
        assert caller(user)("DELETE", f"{place}/hf-token").status_code == 204
        assert caller(user)("DELETE", f"{place}/hf-token").status_code == 404


def test_personal_secrets_with_the_same_name_are_separate_per_user(
    cast: Cast, caller: Callable[..., Caller]
) -> None:
    dave, frank = caller("dave"), caller("frank")
    for user, value in ((dave, TOKEN), (frank, "other")):
        created = user("PUT", "secrets/wandb", {"value": value})
        assert (created.status_code, created["Location"]) == (201, "/api/v1/secrets/wandb")
    assert dave("PUT", "secrets/wandb", {"value": "second"}).json()["version"] == 2
    assert frank.get("secrets/wandb").json()["version"] == 1
    assert [item["name"] for item in dave.get("secrets").json()["items"]] == ["wandb"]
    assert dave.get("secrets/wandb/uses").json()["items"] == []
    rejected = dave("PUT", "secrets/hub", LOGIN)
    assert rejected.status_code == 422 and "personal secrets" in rejected.content.decode()
    assert dave("DELETE", "secrets/wandb").status_code == 204
    assert not dave.get("secrets").json()["items"] and frank.get("secrets/wandb").status_code == 200
    everything = caller("alice").get("audit", object_type="usersecret").content.decode()
    assert "wandb" in everything and TOKEN not in everything


def test_no_response_contains_a_secret_value(cast: Cast, caller: Callable[..., Caller]) -> None:
    alice = caller("alice")
    for place in (PROJECT, POOL):
        answers = [
            alice("PUT", f"{place}/a", {"value": TOKEN}, headers={"Idempotency-Key": "1"}),
            alice("PUT", f"{place}/b", LOGIN),
            alice.get(place),
            alice.get(f"{place}/a"),
            alice.get("audit"),
            alice.get("node-pools/local"),
        ]
        assert {answer.status_code for answer in answers} <= {200, 201}
        assert not any(TOKEN in answer.content.decode() for answer in answers)
    listed = alice.get(PROJECT).json()
    assert [item["name"] for item in listed["items"]] == ["a", "b"]
    assert set(listed["items"][0]) == {
        "name", "kind", "registry", "username", "version", "created_at", "created_by",
        "updated_at", "updated_by",
    }  # fmt: skip
    assert not StoredResponse.objects.exists()
    assert not any(TOKEN in f"{row.before}{row.after}" for row in Audit.objects.all())


@pytest.mark.heavy
def test_secret_list_is_paginated(cast: Cast, caller: Callable[..., Caller], put: Any) -> None:
    for name in ("a", "b", "c"):
        put("carol", f"{PROJECT}/{name}", {"value": TOKEN})
    first = caller("dave").get(PROJECT, limit=2).json()
    second = caller("dave").get(PROJECT, limit=2, cursor=first["next"]).json()
    assert [item["name"] for page in (first, second) for item in page["items"]] == ["a", "b", "c"]


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("user", "place", "listed", "changed"),
    [
        ("alice", PROJECT, 200, 201),
        ("bob", PROJECT, 200, 201),
        ("carol", PROJECT, 200, 201),
        ("dave", PROJECT, 200, 403),
        ("erin", PROJECT, 200, 403),
        ("grace", PROJECT, 404, 404),
        ("frank", PROJECT, 404, 404),
        ("alice", POOL, 200, 201),
        ("bob", POOL, 200, 403),
        ("dave", POOL, 200, 403),
        ("frank", POOL, 404, 404),
    ],
)
def test_members_can_list_secret_names_and_admins_can_set_values(
    caller: Callable[..., Caller], put: Any, user: str, place: str, listed: int, changed: int
) -> None:
    put("alice", f"{place}/there", {"value": TOKEN})
    assert caller(user).get(place).status_code == listed
    assert put(user, f"{place}/new", {"value": TOKEN}).status_code == changed
    deleted = caller(user)("DELETE", f"{place}/there").status_code
    assert deleted == (204 if changed == 201 else changed)
    assert (ProjectSecret.objects.count() + PoolSecret.objects.count()) == 1


def test_token_without_the_admin_scope_cannot_set_a_secret(caller: Callable[..., Caller]) -> None:
    rejected = caller("carol", "write")("PUT", f"{PROJECT}/a", {"value": TOKEN})
    assert (rejected.status_code, rejected.json()["allowed"]) == (403, ["admin"])


@pytest.mark.parametrize(
    "body",
    [
        {"value": [TOKEN]},
        {"value": ""},
        {"value": f"{TOKEN}\0"},
        {"value": TOKEN * 10_000},
        {"value": TOKEN, "registry": "docker.io"},
        {"registry": "docker.io", "password": TOKEN},
        {"registry": "docker.io", "username": "a:b", "password": TOKEN},
        {},
        {"vlaue": TOKEN},
        [TOKEN],
        TOKEN,
        ("application/json", f'{{"value": "{TOKEN}"'),
        ("application/yaml", f"value: !!int {TOKEN}"),
        ("application/yaml", f"value: '{TOKEN}\nother: [{TOKEN}"),
    ],
)
def test_error_does_not_contain_the_rejected_value(cast: Cast, put: Any, body: Any) -> None:
    for place in (PROJECT, POOL):
        answer = put("alice", f"{place}/a", body)
        assert answer.status_code in (400, 422), answer.content
        assert TOKEN not in answer.content.decode()
    assert not ProjectSecret.objects.exists() and not PoolSecret.objects.exists()


def test_log_of_an_unexpected_error_does_not_contain_the_value(
    cast: Cast, put: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("pools.services.secrets.seal", broken)
    assert put("carol", f"{PROJECT}/a", {"value": TOKEN}).status_code == 500
    assert "RuntimeError" in caplog.text and TOKEN not in caplog.text


@pytest.mark.heavy
def test_error_for_an_unknown_secret_suggests_the_nearest_name(
    cast: Cast, caller: Callable[..., Caller], put: Any
) -> None:
    put("carol", f"{PROJECT}/hf-token", {"value": TOKEN})
    document = {
        "name": "train", "project": "vision", "command": "true", "roles": [{"name": "w", "gpu": 1}],
        "secrets": [{"name": "hf-tokn", "env": "HF_TOKEN"}],
    }  # fmt: skip
    rejected = caller("dave").post("workloads", document)
    assert rejected.status_code == 422
    assert rejected.json()["errors"][0]["allowed"] == "Did you mean `hf-token`?"
    document["secrets"] = [{"name": "hf-token", "env": "HF_TOKEN"}]
    accepted = caller("dave").post("workloads", document)
    assert accepted.status_code == 201
    assert TOKEN not in accepted.content.decode()
