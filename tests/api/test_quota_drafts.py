"""Quota drafts are applied whole, once and against the versions seen, and can be reverted."""

from typing import Any

import pytest

from projects.models import Audit, Project, Quota, QuotaChange
from projects.services import quotas
from projects.services.quotas import drafts
from tests.api.conftest import Caller
from tests.cast import Cast

BOTH = {
    "changes": [
        {"project": "vision", "pool": "local", "set": {"gpu": 3, "limit": {"gpu": 6}}},
        {"project": "speech", "pool": "local", "set": {"gpu": 1}},
    ],
    "comment": "speech begins",
}


@pytest.fixture
def vision(cast: Cast) -> Quota:
    return quotas.set_quota(acting=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 4})


def tag(caller: Caller, document: Any = BOTH) -> str:
    answer = caller.post("quotas/preview", document)
    assert answer.status_code == 200, answer.content
    assert answer["ETag"] == f'"{answer.json()["tag"]}"'
    return str(answer["ETag"])


def gpus() -> dict[str, int | None]:
    return {row.owner.name: row.gpu_milli for row in Quota.objects.all()}


def test_a_set_is_applied_whole_with_an_audit_row_for_each_quota(vision: Quota, bob: Caller) -> None:
    answer = bob.post("quotas/apply", BOTH, If_Match=tag(bob))
    change = answer.json()["change"]
    assert (change["actor"], change["comment"], change["hidden"]) == ("bob", "speech begins", 0)
    assert [(each["name"], each["before"] and each["before"]["gpu"], each["after"]["gpu"])
            for each in change["quotas"]] == [("vision", 4, 3), ("speech", None, 1)]  # fmt: skip
    rows = Audit.objects.filter(change_id=change["id"]).order_by("object_name")
    assert [(row.object_name, row.action) for row in rows] == [
        ("speech on local", "set_quota"), ("vision on local", "set_quota"),
    ]  # fmt: skip
    assert gpus() == {"vision": 3000, "speech": 1000}
    assert answer["ETag"] == tag(bob), "what was stored can be built upon"


def test_who_comes_second_is_told_who_was_first_and_what_it_is_now(
    cast: Cast, vision: Quota, bob: Caller, alice: Caller
) -> None:
    seen = tag(bob)
    quotas.set_quota(acting=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 5})
    answer = bob.post("quotas/apply", BOTH, If_Match=seen)
    assert answer.status_code == 412
    (changed,) = answer.json()["changed"]
    assert (changed["name"], changed["pool"], changed["by"]) == ("vision", "local", "alice")
    assert changed["current"]["gpu"] == 5
    assert "vision on local (by alice)" in answer.json()["detail"]
    assert gpus() == {"vision": 5000}, "all or nothing"
    assert bob.post("quotas/apply", BOTH, If_Match=tag(bob)).status_code == 200


def test_a_quota_that_was_removed_or_made_meanwhile_counts_as_changed(
    cast: Cast, vision: Quota, bob: Caller
) -> None:
    seen = tag(bob)
    quotas.remove_quota(acting=cast.alice, quota=vision)
    quotas.set_quota(acting=cast.alice, owner=cast.speech, pool=cast.pool, values={"gpu": 9})
    changed = bob.post("quotas/apply", BOTH, If_Match=seen).json()["changed"]
    assert [(each["name"], each["by"], each["current"] and each["current"]["gpu"]) for each in changed] == [
        ("vision", "alice", None), ("speech", "alice", 9),
    ]  # fmt: skip


def test_a_set_needs_to_say_what_it_was_made_on(vision: Quota, bob: Caller) -> None:
    assert bob.post("quotas/apply", BOTH).status_code == 428
    assert bob.post("quotas/apply", BOTH, If_Match='"7.1"').status_code == 412
    assert bob.post("quotas/apply", BOTH, If_Match="*").status_code == 200


def test_sent_twice_it_is_done_once(vision: Quota, bob: Caller) -> None:
    seen = tag(bob)
    answers = [bob.post("quotas/apply", BOTH, If_Match=seen, Idempotency_Key="k1") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert QuotaChange.objects.filter(actor="bob").count() == 1


def test_who_builds_upon_an_answer_does_not_overwrite_what_came_right_after_it(
    cast: Cast, vision: Quota, bob: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = drafts.apply_draft

    def overtaken(**values: Any) -> Any:
        made = applied(**values)
        quotas.set_quota(acting=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 5})
        return made

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(drafts, "apply_draft", overtaken)
        answer = bob.post("quotas/apply", BOTH, If_Match=tag(bob))
    assert bob.post("quotas/apply", BOTH, If_Match=answer["ETag"]).status_code == 412
    assert gpus()["vision"] == 5000


def test_what_is_so_already_leaves_no_change(vision: Quota, bob: Caller) -> None:
    same = {"changes": [{"project": "vision", "pool": "local", "set": {"gpu": 4}}]}
    assert bob.post("quotas/preview", same).json()["changes_nothing"] is True
    assert bob.post("quotas/apply", same, If_Match="*").json() == {"change": None}
    assert QuotaChange.objects.count() == 1


def test_a_change_is_taken_back_with_removals_and_creations(cast: Cast, vision: Quota, bob: Caller) -> None:
    document = {"changes": [
        {"project": "vision", "pool": "local", "remove": True},
        {"project": "speech", "pool": "local", "set": {"gpu": 1}},
    ]}  # fmt: skip
    made = bob.post("quotas/apply", document, If_Match="*").json()["change"]["id"]
    assert gpus() == {"speech": 1000}
    undone = bob.post(f"quotas/changes/{made}/revert")
    assert undone.status_code == 200, undone.content
    assert undone.json()["reverts"] == made
    assert gpus() == {"vision": 4000}
    assert bob.get(f"quotas/changes/{made}").json()["reverted_by"] == undone.json()["id"]
    assert bob.post(f"quotas/changes/{made}/revert").status_code == 409
    assert bob.post(f"quotas/changes/{undone.json()['id']}/revert").status_code == 200
    assert gpus() == {"speech": 1000}


def test_a_change_that_others_built_upon_is_not_taken_back(cast: Cast, vision: Quota, bob: Caller) -> None:
    made = bob.post("quotas/apply", BOTH, If_Match="*").json()["change"]["id"]
    quotas.set_quota(acting=cast.alice, owner=cast.speech, pool=cast.pool, values={"gpu": 2})
    answer = bob.post(f"quotas/changes/{made}/revert")
    assert (answer.status_code, [each["name"] for each in answer.json()["changed"]]) == (412, ["speech"])
    assert gpus() == {"vision": 3000, "speech": 2000}


def test_the_history_shows_each_reader_their_own(
    cast: Cast, vision: Quota, alice: Caller, bob: Caller, carol: Caller, frank: Caller, caller: Any
) -> None:
    whole = {"changes": [*BOTH["changes"], {"project": "ads", "pool": "local", "set": {"gpu": 1}}]}
    alice.post("quotas/apply", whole, If_Match="*")

    def newest(who: Caller) -> tuple[list[str], int]:
        items = who.get("quotas/changes").json()["items"]
        return ([each["name"] for each in items[0]["quotas"]], items[0]["hidden"]) if items else ([], 0)

    assert newest(alice) == (["vision", "speech", "ads"], 0)
    assert newest(bob) == (["vision", "speech"], 1)
    assert newest(carol) == (["vision"], 2)
    assert newest(caller("grace")) == (["ads"], 2)
    assert newest(frank) == ([], 0)
    made = alice.get("quotas/changes").json()["items"][0]["id"]
    assert frank.get(f"quotas/changes/{made}").status_code == 404
    assert frank.post(f"quotas/changes/{made}/revert").status_code == 404
    assert carol.post(f"quotas/changes/{made}/revert").status_code == 403


def test_who_sees_a_part_of_a_change_learns_nothing_of_the_rest_by_taking_it_back(
    cast: Cast, vision: Quota, alice: Caller, bob: Caller
) -> None:
    secret = Project.objects.create(name="secret-merger", department=cast.product)
    entries = [*BOTH["changes"], {"project": secret.name, "pool": "local", "set": {"gpu": 1}}]
    made = alice.post("quotas/apply", {"changes": entries}, If_Match="*").json()["change"]["id"]
    there = bob.post(f"quotas/changes/{made}/revert")
    secret.quotas.all().delete()
    secret.delete()
    gone = bob.post(f"quotas/changes/{made}/revert")
    assert (there.status_code, gone.status_code) == (403, 403)
    assert (
        there.json()["detail"]
        == gone.json()["detail"]
        == (f"Change {made} includes quotas that you may not set.")
    )
    told = alice.post(f"quotas/changes/{made}/revert")
    assert (told.status_code, "secret-merger was deleted" in told.json()["detail"]) == (409, True)


def test_who_may_not_set_them_may_neither_preview_nor_apply(
    vision: Quota, carol: Caller, frank: Caller, caller: Any
) -> None:
    for path in ("quotas/preview", "quotas/apply"):
        own = {"changes": BOTH["changes"][:1]}
        assert carol.post(path, own, If_Match="*").status_code == 403
        assert carol.post(path, BOTH, If_Match="*").status_code == 422, "speech is not there for carol"
        assert frank.post(path, BOTH, If_Match="*").status_code == 422, "there are no such projects for frank"
        assert caller("bob", "read", "write").post(path, BOTH, If_Match="*").status_code == 403
        assert caller("")("POST", path, BOTH).status_code == 401
    assert gpus() == {"vision": 4000}


@pytest.mark.parametrize("body", [{}, [], {"changes": []}, {"changes": "x"}, {"changes": [1]},
                                  {"changes": [{"project": "vision"}]}, {"change": []},
                                  {"changes": [{"project": ["vision"], "pool": {}, "set": []}]}])  # fmt: skip
def test_nonsense_is_refused_with_its_place(body: Any, vision: Quota, bob: Caller) -> None:
    for path in ("quotas/preview", "quotas/apply"):
        answer = bob.post(path, body, If_Match="*")
        assert answer.status_code == 422
        assert all(error["message"] for error in answer.json()["errors"])
