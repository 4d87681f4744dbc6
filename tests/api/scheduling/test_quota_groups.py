"""Tests for quota groups and their quotas over REST."""

from typing import Any

import pytest

from pools.models import NodePool, QuotaGroup
from projects.models import Audit, Quota
from tests import factories
from tests.api.conftest import Caller
from tests.cast import Cast

NEW = {"If-None-Match": "*"}
VISION = "quotas/projects/vision/h100"


def put(caller: Caller, path: str, body: Any, headers: dict[str, str]) -> Any:
    return caller("PUT", path, body, headers=headers)


def delete(caller: Caller, path: str, headers: dict[str, str]) -> Any:
    return caller("DELETE", path, headers=headers)


@pytest.fixture
def metal(cast: Cast) -> NodePool:
    return factories.pool("metal", gpu_model="H100")


@pytest.fixture
def cloud(metal: NodePool) -> NodePool:
    return factories.pool("cloud", gpu_model="H100")


@pytest.fixture
def h100(cast: Cast, cloud: NodePool, alice: Caller) -> dict[str, Any]:
    answer = put(alice, "quota-groups/h100", {"pools": ["metal", "cloud"]}, NEW)
    assert answer.status_code == 201, answer.content
    return dict(answer.json())


def problems(answer: Any) -> list[tuple[str, str]]:
    assert answer.status_code == 422, answer.content
    return [(problem["path"], problem["message"]) for problem in answer.json()["errors"]]


def test_quota_group_is_created_listed_edited_and_deleted(
    h100: dict[str, Any], cast: Cast, alice: Caller
) -> None:
    assert h100 == {"name": "h100", "pools": ["cloud", "metal"], "version": 1}
    assert alice.get("quota-groups").json()["items"] == [h100]
    read = alice.get("quota-groups/h100")
    edited = put(alice, "quota-groups/h100", {"pools": ["metal"]}, {"If-Match": read["ETag"]})
    assert edited.json() == {"name": "h100", "pools": ["metal"], "version": 2}
    outdated = put(alice, "quota-groups/h100", {"pools": ["cloud"]}, {"If-Match": read["ETag"]})
    assert outdated.status_code == 412
    assert delete(alice, "quota-groups/h100", {"If-Match": edited["ETag"]}).status_code == 204
    assert not NodePool.objects.filter(quota_group__isnull=False).exists()
    rows = Audit.objects.filter(object_type="quotagroup").order_by("pk")
    assert [(row.action, row.before, row.after) for row in rows] == [
        ("create", None, {"pools": ["cloud", "metal"]}),
        ("edit", {"pools": ["cloud", "metal"]}, {"pools": ["metal"]}),
        ("delete", {"pools": ["metal"]}, None),
    ]


def test_pools_with_different_gpu_models_are_rejected(cloud: NodePool, cast: Cast, alice: Caller) -> None:
    factories.pool("old", gpu_model="A100")
    answer = put(alice, "quota-groups/mixed", {"pools": ["cloud", "old"]}, NEW)
    assert problems(answer) == [("pools", "have different GPU models")]
    assert "cloud: H100, old: A100" in str(answer.json())


@pytest.mark.heavy
def test_gpu_models_of_joined_nodes_are_checked(metal: NodePool, cast: Cast, alice: Caller) -> None:
    hosts = factories.pool("hosts", gpu_model="")
    factories.node(hosts, gpu_model="A100")
    answer = put(alice, "quota-groups/mixed", {"pools": ["metal", "hosts"]}, NEW)
    assert problems(answer) == [("pools", "have different GPU models")]


@pytest.mark.heavy
def test_pool_in_a_quota_group_cannot_change_to_another_gpu_model(
    h100: dict[str, Any], cloud: NodePool, alice: Caller
) -> None:
    match = {"If-Match": "*"}
    answer = alice("PATCH", "node-pools/cloud", {"gpu_model": "A100"}, headers=match)
    assert problems(answer) == [("gpu_model", "differs from quota group h100")]
    assert "metal: H100" in str(answer.json())
    same = alice("PATCH", "node-pools/cloud", {"gpu_model": "H100", "max_pods": 64}, headers=match)
    assert same.status_code == 200


def test_pool_cannot_belong_to_two_quota_groups(h100: dict[str, Any], alice: Caller) -> None:
    answer = put(alice, "quota-groups/other", {"pools": ["cloud"]}, NEW)
    assert problems(answer) == [("pools[0]", "already belongs to quota group h100")]


@pytest.mark.parametrize(
    ("name", "pools", "expected"),
    [
        ("metal", ["cloud"], ("name", "is already used by a pool")),
        ("H100", ["cloud"], ("name", "is not a valid name")),
        ("h100", ["clowd"], ("pools[0]", "does not exist")),
        ("h100", ["cloud", "cloud"], ("pools[1]", "is listed twice")),
    ],
)
def test_invalid_quota_group_is_rejected(
    name: str, pools: list[str], expected: tuple[str, str], cloud: NodePool, cast: Cast, alice: Caller
) -> None:
    assert problems(put(alice, f"quota-groups/{name}", {"pools": pools}, NEW)) == [expected]
    assert not QuotaGroup.objects.exists()


@pytest.mark.heavy
def test_pool_cannot_have_the_name_of_a_quota_group(h100: dict[str, Any], alice: Caller) -> None:
    answer = alice.post("node-pools", {"name": "h100", "nodes_max": 1})
    assert problems(answer) == [("name", "is already used by a quota group")]


def test_group_quota_is_set_read_listed_and_deleted(h100: dict[str, Any], cast: Cast, bob: Caller) -> None:
    stored = put(bob, VISION, {"gpu": 64, "limit": {"gpu": 80}}, NEW)
    assert stored.status_code == 201, stored.content
    assert (stored.json()["pool"], stored.json()["gpu"]) == ("h100", 64)
    assert stored.json()["pools"] == {"cloud": None, "metal": None}
    assert stored.json()["status"] is None
    assert bob.get(VISION).json()["version"] == 1
    for pool in ("h100", "metal", "cloud"):
        assert [row["pool"] for row in bob.get(f"quotas?pool={pool}").json()["items"]] == ["h100"]
    assert delete(bob, VISION, {"If-Match": stored["ETag"]}).status_code == 204
    assert not Quota.objects.exists()


@pytest.mark.heavy
def test_group_quota_response_includes_the_status_in_each_pool(
    h100: dict[str, Any], cast: Cast, metal: NodePool, bob: Caller
) -> None:
    put(bob, VISION, {"gpu": 64}, NEW)
    factories.queue_status(cast.vision, metal, share=24, allocated=16, requested=32)
    pools = bob.get(VISION).json()["pools"]
    assert (pools["metal"]["allocated"]["gpu"], pools["cloud"]) == (16, None)


def test_owner_cannot_have_quotas_for_both_a_pool_and_its_group(
    h100: dict[str, Any], cast: Cast, bob: Caller
) -> None:
    put(bob, "quotas/projects/vision/metal", {"gpu": 8}, NEW)
    answer = put(bob, VISION, {"gpu": 64}, NEW)
    assert problems(answer) == [("pool", "overlaps with vision's quota in pool metal")]
    assert "berth quota apply" in str(answer.json())
    assert put(bob, "quotas/projects/speech/h100", {"gpu": 64}, NEW).status_code == 201
    answer = put(bob, "quotas/projects/speech/cloud", {"gpu": 8}, NEW)
    assert problems(answer) == [("pool", "overlaps with speech's quota in quota group h100")]


@pytest.mark.heavy
def test_draft_replaces_pool_quotas_with_a_group_quota(h100: dict[str, Any], cast: Cast, bob: Caller) -> None:
    for pool in ("metal", "cloud"):
        assert put(bob, f"quotas/projects/vision/{pool}", {"gpu": 8}, NEW).status_code == 201
    draft = {
        "changes": [
            {"project": "vision", "pool": "h100", "set": {"gpu": 16}},
            {"project": "vision", "pool": "metal", "remove": True},
            {"project": "vision", "pool": "cloud", "remove": True},
        ]
    }
    preview = bob.post("quotas/preview", draft)
    assert preview.status_code == 200, preview.content
    assert [(edit["pool"], edit["group"]) for edit in preview.json()["quotas"]] == [
        ("h100", True), ("metal", False), ("cloud", False),
    ]  # fmt: skip
    applied = bob.post("quotas/apply", draft, If_Match=preview["ETag"])
    assert applied.status_code == 200, applied.content
    assert [str(quota) for quota in Quota.objects.all()] == ["vision in quota group h100"]
    change = applied.json()["change"]
    assert [(quota["pool"], quota["group"]) for quota in change["quotas"]] == [
        ("h100", True), ("metal", False), ("cloud", False),
    ]  # fmt: skip
    reverted = bob.post(f"quotas/changes/{change['id']}/revert")
    assert reverted.status_code == 200, reverted.content
    assert sorted(str(quota) for quota in Quota.objects.all()) == [
        "vision in pool cloud", "vision in pool metal",
    ]  # fmt: skip


@pytest.mark.heavy
def test_draft_with_quotas_for_a_pool_and_its_group_is_rejected(
    h100: dict[str, Any], cast: Cast, bob: Caller
) -> None:
    changes = [{"project": "vision", "pool": pool, "set": {"gpu": 8}} for pool in ("h100", "metal")]
    answer = bob.post("quotas/preview", {"changes": changes})
    assert [path for path, _ in problems(answer)] == ["changes[0].pool", "changes[1].pool"]


@pytest.mark.heavy
def test_pool_with_quotas_joins_a_quota_group_unless_an_owner_has_quotas_in_both(
    h100: dict[str, Any], cast: Cast, alice: Caller
) -> None:
    factories.pool("hosts", gpu_model="H100")
    put(alice, VISION, {"gpu": 64}, NEW)
    put(alice, "quotas/projects/ads/hosts", {"gpu": 8}, NEW)
    wider = {"pools": ["metal", "cloud", "hosts"]}
    assert put(alice, "quota-groups/h100", wider, {"If-Match": "*"}).status_code == 200
    put(alice, "quota-groups/h100", {"pools": ["metal", "cloud"]}, {"If-Match": "*"})
    put(alice, "quotas/projects/vision/hosts", {"gpu": 8}, NEW)
    answer = put(alice, "quota-groups/h100", wider, {"If-Match": "*"})
    assert problems(answer) == [("pools", "have quotas for owners that also have a quota in h100")]
    assert "vision in pool hosts" in str(answer.json())


def test_quota_group_with_quotas_cannot_be_deleted(h100: dict[str, Any], cast: Cast, alice: Caller) -> None:
    put(alice, VISION, {"gpu": 64}, NEW)
    answer = delete(alice, "quota-groups/h100", {"If-Match": "*"})
    assert answer.status_code == 409
    assert answer.json()["detail"] == (
        "Quota group h100 still has 1 quota. Delete them first, or use `berth quota apply` "
        "to replace them with quotas in its pools."
    )


def test_pools_of_a_quota_group_are_changed_with_the_etag_of_the_preview(
    h100: dict[str, Any], cast: Cast, alice: Caller
) -> None:
    put(alice, VISION, {"gpu": 64}, NEW)
    preview = alice.post("quota-groups/h100/preview", {"pools": ["metal"]})
    assert preview.status_code == 200, preview.content
    body = preview.json()
    assert (body["pools_before"], body["pools_after"]) == (["cloud", "metal"], ["metal"])
    (quota,) = body["quotas"]
    assert (quota["name"], quota["pool"]) == ("vision", "cloud")
    assert (quota["before"]["gpu"], quota["after"]["gpu"]) == (64, 0)
    assert alice.get("quota-groups/h100").json()["pools"] == ["cloud", "metal"]
    answer = put(alice, "quota-groups/h100", {"pools": ["metal"]}, {"If-Match": preview["ETag"]})
    assert answer.status_code == 200, answer.content
    factories.pool("old", gpu_model="A100")
    answer = alice.post("quota-groups/h100/preview", {"pools": ["metal", "old"]})
    assert problems(answer) == [("pools", "have different GPU models")]


@pytest.mark.heavy
def test_group_quota_preview_warns_if_totals_exceed_the_department_or_the_pools(
    h100: dict[str, Any], cast: Cast, metal: NodePool, cloud: NodePool, alice: Caller
) -> None:
    factories.node(metal, gpus=8)
    factories.node(cloud, gpus=8)
    changes = [
        {"department": "research", "pool": "h100", "set": {"gpu": 20}},
        {"project": "vision", "pool": "h100", "set": {"gpu": 24}},
    ]
    warnings = alice.post("quotas/preview", {"changes": changes}).json()["warnings"]
    assert [(warning["code"], warning["pool"]) for warning in warnings] == [
        ("projects_above_department", "h100"),
        ("departments_above_pool", "h100"),
    ]
    assert warnings[1]["message"] == (
        "Department quotas in h100 add up to 20 GPUs; its pools have at most 16 GPUs."
    )
