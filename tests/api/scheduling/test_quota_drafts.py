"""Tests for previewing, applying and reverting quota changes over REST."""

from typing import Any

import pytest

from projects.models import Audit, Project, Quota, QuotaChange
from projects.services import quotas
from projects.services.quotas import drafts
from tests.api.conftest import Caller
from tests.cast import Cast

TWO_QUOTA_DRAFT = {
    "changes": [
        {"project": "vision", "pool": "local", "set": {"gpu": 3, "limit": {"gpu": 6}}},
        {"project": "speech", "pool": "local", "set": {"gpu": 1}},
    ],
    "comment": "speech begins",
}


@pytest.fixture
def vision(cast: Cast) -> Quota:
    return quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 4})


def preview_tag(caller: Caller, document: Any = TWO_QUOTA_DRAFT) -> str:
    answer = caller.post("quotas/preview", document)
    assert answer.status_code == 200, answer.content
    assert answer["ETag"] == f'"{answer.json()["tag"]}"'
    return str(answer["ETag"])


def gpu_quotas() -> dict[str, int | None]:
    return {row.owner.name: row.gpu_milli for row in Quota.objects.all()}


def test_draft_is_applied_with_an_audit_row_per_quota(vision: Quota, bob: Caller) -> None:
    answer = bob.post("quotas/apply", TWO_QUOTA_DRAFT, If_Match=preview_tag(bob))
    change = answer.json()["change"]
    assert (change["actor"], change["comment"], change["hidden"]) == ("bob", "speech begins", 0)
    assert [(item["name"], item["before"] and item["before"]["gpu"], item["after"]["gpu"])
            for item in change["quotas"]] == [("vision", 4, 3), ("speech", None, 1)]  # fmt: skip
    rows = Audit.objects.filter(change_id=change["id"]).order_by("object_name")
    assert [(row.object_name, row.action) for row in rows] == [
        ("speech in pool local", "set_quota"), ("vision in pool local", "set_quota"),
    ]  # fmt: skip
    assert gpu_quotas() == {"vision": 3000, "speech": 1000}
    assert answer["ETag"] == preview_tag(bob), "the next change can use this tag"


def test_conflict_names_the_other_user_and_the_current_value(
    cast: Cast, vision: Quota, bob: Caller, alice: Caller
) -> None:
    etag = preview_tag(bob)
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 5})
    answer = bob.post("quotas/apply", TWO_QUOTA_DRAFT, If_Match=etag)
    assert answer.status_code == 412
    (changed,) = answer.json()["changed"]
    assert (changed["name"], changed["pool"], changed["by"]) == ("vision", "local", "alice")
    assert changed["current"]["gpu"] == 5
    assert "vision in pool local (by alice)" in answer.json()["detail"]
    assert gpu_quotas() == {"vision": 5000}, "the whole draft is rejected"
    assert bob.post("quotas/apply", TWO_QUOTA_DRAFT, If_Match=preview_tag(bob)).status_code == 200


@pytest.mark.heavy
def test_concurrently_deleted_or_created_quota_causes_a_conflict(
    cast: Cast, vision: Quota, bob: Caller
) -> None:
    etag = preview_tag(bob)
    quotas.remove_quota(actor=cast.alice, quota=vision)
    quotas.set_quota(actor=cast.alice, owner=cast.speech, pool=cast.pool, values={"gpu": 9})
    changed = bob.post("quotas/apply", TWO_QUOTA_DRAFT, If_Match=etag).json()["changed"]
    assert [(item["name"], item["by"], item["current"] and item["current"]["gpu"]) for item in changed] == [
        ("vision", "alice", None), ("speech", "alice", 9),
    ]  # fmt: skip


@pytest.mark.heavy
def test_applying_a_draft_requires_its_base_version(vision: Quota, bob: Caller) -> None:
    assert bob.post("quotas/apply", TWO_QUOTA_DRAFT).status_code == 428
    assert bob.post("quotas/apply", TWO_QUOTA_DRAFT, If_Match='"7.1"').status_code == 412
    assert bob.post("quotas/apply", TWO_QUOTA_DRAFT, If_Match="*").status_code == 200


def test_applying_a_draft_twice_takes_effect_once(vision: Quota, bob: Caller) -> None:
    etag = preview_tag(bob)
    answers = [
        bob.post("quotas/apply", TWO_QUOTA_DRAFT, If_Match=etag, Idempotency_Key="k1") for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert QuotaChange.objects.filter(actor="bob").count() == 1


@pytest.mark.heavy
def test_response_etag_excludes_changes_made_after_the_draft_was_applied(
    cast: Cast, vision: Quota, bob: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = drafts.apply_draft

    def apply_then_overwrite(**values: Any) -> Any:
        made = applied(**values)
        quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 5})
        return made

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(drafts, "apply_draft", apply_then_overwrite)
        answer = bob.post("quotas/apply", TWO_QUOTA_DRAFT, If_Match=preview_tag(bob))
    assert bob.post("quotas/apply", TWO_QUOTA_DRAFT, If_Match=answer["ETag"]).status_code == 412
    assert gpu_quotas()["vision"] == 5000


@pytest.mark.heavy
def test_draft_without_effect_is_not_stored(vision: Quota, bob: Caller) -> None:
    same = {"changes": [{"project": "vision", "pool": "local", "set": {"gpu": 4}}]}
    assert bob.post("quotas/preview", same).json()["changes_nothing"] is True
    assert bob.post("quotas/apply", same, If_Match="*").json() == {"change": None}
    assert QuotaChange.objects.count() == 1


def test_reverting_a_change_restores_deleted_quotas_and_deletes_created_quotas(
    cast: Cast, vision: Quota, bob: Caller
) -> None:
    document = {"changes": [
        {"project": "vision", "pool": "local", "remove": True},
        {"project": "speech", "pool": "local", "set": {"gpu": 1}},
    ]}  # fmt: skip
    made = bob.post("quotas/apply", document, If_Match="*").json()["change"]["id"]
    assert gpu_quotas() == {"speech": 1000}
    reverted = bob.post(f"quotas/changes/{made}/revert")
    assert reverted.status_code == 200, reverted.content
    assert reverted.json()["reverts"] == made
    assert gpu_quotas() == {"vision": 4000}
    assert bob.get(f"quotas/changes/{made}").json()["reverted_by"] == reverted.json()["id"]
    assert bob.post(f"quotas/changes/{made}/revert").status_code == 409
    assert bob.post(f"quotas/changes/{reverted.json()['id']}/revert").status_code == 200
    assert gpu_quotas() == {"speech": 1000}


def test_superseded_change_cannot_be_reverted(cast: Cast, vision: Quota, bob: Caller) -> None:
    made = bob.post("quotas/apply", TWO_QUOTA_DRAFT, If_Match="*").json()["change"]["id"]
    quotas.set_quota(actor=cast.alice, owner=cast.speech, pool=cast.pool, values={"gpu": 2})
    answer = bob.post(f"quotas/changes/{made}/revert")
    assert (answer.status_code, [item["name"] for item in answer.json()["changed"]]) == (412, ["speech"])
    last = QuotaChange.objects.latest("pk")
    assert answer.json()["detail"] == (
        f"Change {made} cannot be reverted, because its quotas were changed again: speech in pool local "
        f"(change {last.pk} by alice). Edit the quotas instead."
    )
    assert gpu_quotas() == {"vision": 3000, "speech": 2000}
    newest, superseded = bob.get("quotas/changes").json()["items"][:2]
    assert (newest["superseded_by"], superseded["superseded_by"]) == (None, last.pk)
    assert bob.get(f"quotas/changes/{made}").json()["superseded_by"] == last.pk


def test_history_omits_hidden_quotas(
    cast: Cast, vision: Quota, alice: Caller, bob: Caller, carol: Caller, frank: Caller, caller: Any
) -> None:
    whole = {"changes": [*TWO_QUOTA_DRAFT["changes"], {"project": "ads", "pool": "local", "set": {"gpu": 1}}]}
    alice.post("quotas/apply", whole, If_Match="*")

    def newest_change(reader: Caller) -> tuple[list[str], int]:
        items = reader.get("quotas/changes").json()["items"]
        return ([item["name"] for item in items[0]["quotas"]], items[0]["hidden"]) if items else ([], 0)

    assert newest_change(alice) == (["vision", "speech", "ads"], 0)
    assert newest_change(bob) == (["vision", "speech"], 1)
    assert newest_change(carol) == (["vision"], 2)
    assert newest_change(caller("grace")) == (["ads"], 2)
    assert newest_change(frank) == ([], 0)
    made = alice.get("quotas/changes").json()["items"][0]["id"]
    assert frank.get(f"quotas/changes/{made}").status_code == 404
    assert frank.post(f"quotas/changes/{made}/revert").status_code == 404
    assert carol.post(f"quotas/changes/{made}/revert").status_code == 403


def test_rejected_revert_does_not_reveal_hidden_quotas(
    cast: Cast, vision: Quota, alice: Caller, bob: Caller
) -> None:
    secret = Project.objects.create(name="secret-merger", department=cast.product)
    entries = [*TWO_QUOTA_DRAFT["changes"], {"project": secret.name, "pool": "local", "set": {"gpu": 1}}]
    made = alice.post("quotas/apply", {"changes": entries}, If_Match="*").json()["change"]["id"]
    before_deletion = bob.post(f"quotas/changes/{made}/revert")
    secret.quotas.all().delete()
    secret.delete()
    after_deletion = bob.post(f"quotas/changes/{made}/revert")
    assert (before_deletion.status_code, after_deletion.status_code) == (403, 403)
    assert (
        before_deletion.json()["detail"]
        == after_deletion.json()["detail"]
        == (f"Change {made} includes quotas that you may not set. Ask a platform admin to revert the change.")
    )
    rejected = alice.post(f"quotas/changes/{made}/revert")
    assert (rejected.status_code, "secret-merger has been deleted" in rejected.json()["detail"]) == (
        409,
        True,
    )


def test_previewing_and_applying_a_draft_require_permission_to_set_the_quotas(
    vision: Quota, carol: Caller, frank: Caller, caller: Any
) -> None:
    for path in ("quotas/preview", "quotas/apply"):
        own = {"changes": TWO_QUOTA_DRAFT["changes"][:1]}
        assert carol.post(path, own, If_Match="*").status_code == 403
        assert carol.post(path, TWO_QUOTA_DRAFT, If_Match="*").status_code == 422, "carol cannot see speech"
        assert frank.post(path, TWO_QUOTA_DRAFT, If_Match="*").status_code == 422, (
            "frank cannot see the projects"
        )
        assert caller("bob", "read", "write").post(path, TWO_QUOTA_DRAFT, If_Match="*").status_code == 403
        assert caller("")("POST", path, TWO_QUOTA_DRAFT).status_code == 401
    assert gpu_quotas() == {"vision": 4000}


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({}, ["changes"]),
        ([], [""]),
        ({"changes": []}, ["changes"]),
        ({"changes": "x"}, ["changes"]),
        ({"changes": [1]}, ["changes[0]"]),
        ({"changes": [{"project": "vision"}]}, ["changes[0].pool", "changes[0]"]),
        ({"change": []}, ["change", "changes"]),
        (
            {"changes": [{"project": ["vision"], "pool": {}, "set": []}]},
            ["changes[0].project", "changes[0].pool", "changes[0]"],
        ),
    ],
)
def test_malformed_draft_is_rejected_with_the_path_of_each_error(
    body: Any, paths: list[str], vision: Quota, bob: Caller
) -> None:
    for path in ("quotas/preview", "quotas/apply"):
        answer = bob.post(path, body, If_Match="*")
        assert answer.status_code == 422
        assert [error["path"] for error in answer.json()["errors"]] == paths
        assert all(error["message"] for error in answer.json()["errors"])
