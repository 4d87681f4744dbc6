"""Tests for quota groups on the quota pages."""

import json
import re
from typing import Any

import pytest

from pools.models import NodePool, QuotaGroup
from projects.models import Quota, QuotaChange
from projects.services.quotas import groups, set_quota
from tests import factories as make
from tests.cast import Cast


@pytest.fixture
def metal(cast: Cast) -> NodePool:
    """Create the pools metal and cloud with a node of eight GPUs each."""
    pools = [make.pool(name, gpu_model="H100") for name in ("metal", "cloud")]
    for pool in pools:
        make.node(pool, gpus=8)
    return pools[0]


@pytest.fixture
def h100(cast: Cast, metal: NodePool) -> QuotaGroup:
    """Create a group of both pools with a quota of 12 GPUs for research and 8 GPUs for vision."""
    pools = list(NodePool.objects.filter(name__in=["metal", "cloud"]))
    group = groups.create_group(actor=cast.alice, name="h100", pools=pools)
    set_quota(actor=cast.alice, owner=cast.research, pool=group, values={"gpu": 12})
    set_quota(actor=cast.alice, owner=cast.vision, pool=group, values={"gpu": 8})
    return group


def draft(quota: Quota | None, owner: Any, place: str, **cells: str) -> dict[str, str]:
    key = f"{owner._meta.model_name}-{owner.pk}"
    version = "0.0" if quota is None else f"{quota.pk}.{quota.version}"
    named = [[key, place, field, text] for field, text in cells.items()]
    return {"draft": json.dumps({"cells": named, "versions": {f"{key}/{place}": version}})}


def test_quota_group_is_one_column_in_the_grid(cast: Cast, h100: QuotaGroup, sign_in: Any) -> None:
    page = sign_in("alice").get("/quotas")
    assert [head.pool.name for head in page.context["heads"]] == ["h100", "local"]
    rows = {row.name: row for row in page.context["rows"]}
    assert [cell.text for cell in rows["vision"].cells][:2] == ["8", "∞"]
    assert rows["research"].cells[0].quota_sum == "8"
    assert "Quotas: 12 of 16 GPUs in cloud, metal" in re.sub(r"<[^>]+>", "", page.content.decode())
    html = page.content.decode()
    assert 'data-place="quota group h100"' in html
    assert html.count(">Quota group</span>") == 1


@pytest.mark.heavy
def test_pool_in_a_quota_group_has_a_column_while_it_has_quotas(
    cast: Cast, metal: NodePool, h100: QuotaGroup, sign_in: Any
) -> None:
    set_quota(actor=cast.alice, owner=cast.ads, pool=metal, values={"gpu": 2})
    page = sign_in("alice").get("/quotas")
    assert [head.pool.name for head in page.context["heads"]] == ["h100", "local", "metal"]


def test_group_quota_cell_is_previewed_and_applied(cast: Cast, h100: QuotaGroup, sign_in: Any) -> None:
    client, stored = sign_in("bob"), Quota.objects.get(project=cast.vision)
    form = draft(stored, cast.vision, "h100", gpu="10")
    preview = client.post("/quotas/grid", {**form, "do": "preview"})
    assert preview.status_code == 200, preview.content
    applied = client.post("/quotas/grid", {**form, "do": "apply"})
    assert applied.status_code == 200, applied.content
    stored.refresh_from_db()
    assert stored.gpu_milli == 10_000
    (cell,) = applied.json()["theirs"]
    assert (cell["pool"], cell["values"]["gpu"]) == ("h100", "10")
    latest = QuotaChange.objects.latest("pk").pk - 1
    updates = client.get(f"/quotas/updates?after={latest}").json()
    assert [change["pool"] for change in updates["theirs"]] == ["h100"]


@pytest.mark.heavy
def test_quota_that_overlaps_with_a_group_quota_shows_an_error_in_its_cell(
    cast: Cast, metal: NodePool, h100: QuotaGroup, sign_in: Any
) -> None:
    form = draft(None, cast.vision, "metal", gpu="2")
    answer = sign_in("bob").post("/quotas/grid", {**form, "do": "apply"})
    assert answer.status_code == 422
    (fault,) = answer.json()["faults"]
    assert "verlaps with vision's quota in quota group h100" in fault["message"]


@pytest.mark.heavy
def test_group_quota_page_sums_its_pools(cast: Cast, metal: NodePool, h100: QuotaGroup, sign_in: Any) -> None:
    cloud = NodePool.objects.get(name="cloud")
    make.queue_status(cast.vision, metal, share=4, allocated=2, requested=4)
    make.queue_status(cast.vision, cloud, share=2, allocated=1, requested=2)
    page = sign_in("bob").get("/quotas?pool=h100")
    lines = {line.owner.name: line for top, _, _ in page.context["tree"] for line in (top, *top.children)}
    assert (lines["vision"].gpus, lines["vision"].share) == (8000, 6000)
    assert "Quotas in quota group h100" in page.content.decode()


@pytest.mark.heavy
def test_quota_page_of_a_pool_shows_the_remaining_group_quota(
    cast: Cast, metal: NodePool, h100: QuotaGroup, sign_in: Any
) -> None:
    cloud = NodePool.objects.get(name="cloud")
    make.queue_status(cast.vision, cloud, share=3, allocated=3, requested=3)
    page = sign_in("bob").get("/quotas?pool=metal")
    lines = {line.owner.name: line for top, _, _ in page.context["tree"] for line in (top, *top.children)}
    assert lines["vision"].gpus == 5000
    text = page.content.decode()
    assert "of 8 in h100" in text
    assert "/quotas/projects/vision/h100" in text


def test_group_quota_is_set_previewed_and_deleted_in_the_form(
    cast: Cast, h100: QuotaGroup, sign_in: Any
) -> None:
    client, address = sign_in("bob"), "/quotas/projects/speech/h100"
    assert "Quota of speech in quota group h100" in client.get(address).content.decode()
    form = {"gpu": "4", "weight": "1", "over_quota": "on", "version": "0"}
    assert client.post(f"{address}/preview", form).status_code == 200
    client.post(address, form)
    assert Quota.objects.get(project=cast.speech).gpu_milli == 4000
    client.post(f"{address}/delete")
    assert not Quota.objects.filter(project=cast.speech).exists()


@pytest.mark.heavy
def test_group_quota_change_is_listed_in_the_quota_history(
    cast: Cast, h100: QuotaGroup, sign_in: Any
) -> None:
    text = sign_in("alice").get("/quotas/changes").content.decode()
    assert "<strong>vision</strong> <span>in quota group h100</span> <span>created</span>" in text


@pytest.mark.heavy
def test_activity_page_names_the_quota_group_and_links_to_it(
    cast: Cast, h100: QuotaGroup, sign_in: Any
) -> None:
    page = sign_in("alice").get("/activity")
    text = " ".join(page.content.decode().split())
    assert 'created quota group <a href="/quotas?pool=h100">h100</a>' in text


def test_unknown_pool_returns_404(cast: Cast, sign_in: Any) -> None:
    assert sign_in("alice").get("/quotas/projects/vision/none").status_code == 404


def test_admin_creates_edits_and_deletes_a_quota_group(cast: Cast, metal: NodePool, sign_in: Any) -> None:
    alice = sign_in("alice")
    form = {"name": "h100", "pools": ["cloud", "metal"]}
    assert "metal (H100)" in alice.get("/quota-groups/new").content.decode()
    answer = alice.post("/quota-groups/new", {**form, "name": "metal"})
    assert answer.status_code == 422 and "Already used by a pool" in answer.content.decode()
    assert alice.post("/quota-groups/new", form).headers["Location"] == "/quotas?pool=h100"
    page = alice.get("/quotas?pool=h100").content.decode()
    assert "These pools share quotas:" in page and 'href="/node-pools/cloud"' in page
    answer = alice.post("/quota-groups/h100/edit", {"pools": ["metal"], "version": "1"})
    assert answer.status_code == 302
    assert [pool.name for pool in NodePool.objects.filter(quota_group__name="h100")] == ["metal"]
    answer = alice.post("/quota-groups/h100/edit", {"pools": ["cloud"], "version": "1"})
    assert answer.status_code == 422 and "the current version is 2" in answer.content.decode()
    assert alice.post("/quota-groups/h100/delete").status_code == 302
    assert not QuotaGroup.objects.exists()


def test_changed_pools_of_a_quota_group_are_previewed_in_the_form(
    cast: Cast, h100: QuotaGroup, sign_in: Any
) -> None:
    alice = sign_in("alice")
    assert 'formaction="/quota-groups/h100/preview"' in alice.get("/quota-groups/h100/edit").content.decode()
    answer = alice.post("/quota-groups/h100/preview", {"pools": ["metal"], "version": "1"})
    text = answer.content.decode()
    assert answer.status_code == 200 and "Impact on the next cycle" in text
    assert "project in pool cloud" in text and 'action="/quota-groups/h100/edit"' in text
    assert sorted(pool.name for pool in h100.pools.all()) == ["cloud", "metal"]
    assert alice.post("/quota-groups/h100/preview", {"version": "1"}).status_code == 422
    assert sign_in("bob").post("/quota-groups/h100/preview", {"pools": ["metal"]}).status_code == 403


def test_only_platform_admins_change_quota_groups(cast: Cast, h100: QuotaGroup, sign_in: Any) -> None:
    for path in ("/quota-groups/new", "/quota-groups/h100/edit", "/quota-groups/h100/delete"):
        assert sign_in("bob").post(path, {"name": "x", "pools": ["metal"]}).status_code == 403, path
    assert "Create quota group" not in sign_in("bob").get("/quotas").content.decode()
    assert "Delete group" not in sign_in("bob").get("/quotas?pool=h100").content.decode()
