"""Tests for the page of quota changes and for reverting changes."""

from datetime import timedelta

import pytest
from django.utils import timezone

from projects.models import Quota, QuotaChange
from projects.services import quotas
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, streamed

HTMX = {"HX-Request": "true"}


@pytest.fixture
def cast_with_quotas(cast: Cast) -> Cast:
    """Create quotas of 2 GPUs for vision and 4 for research, and a pending vision workload."""
    make.quota(cast.research, cast.pool, 4)
    make.quota(cast.vision, cast.pool, 2)
    make.node(cast.pool)
    make.workload(cast.vision, "waits", gpus=1, replicas=2)
    return cast


def gpus() -> dict[str, int | None]:
    return {row.owner.name: row.gpu_milli for row in Quota.objects.all()}


def test_quota_change_is_previewed_and_reverted(cast_with_quotas: Cast, sign_in: SignIn) -> None:
    bob = sign_in("bob")
    quotas.set_quota(
        actor=cast_with_quotas.bob,
        owner=cast_with_quotas.vision,
        pool=cast_with_quotas.pool,
        values={"gpu": 0},
    )
    change = QuotaChange.objects.get()
    listed = bob.get("/quotas/changes").content.decode()
    address = f"/quotas/changes/{change.pk}/revert"
    assert f'href="{address}"' in listed
    assert '<span class="soft">2</span> → <strong class="strong">0</strong>' in listed
    dialog = bob.get(address, headers=HTMX).content.decode()
    assert f"Revert change {change.pk}?" in dialog
    assert "Impact on the next cycle" in dialog
    assert gpus()["vision"] == 0, "a preview changes nothing"
    assert bob.post(address, headers=HTMX)["HX-Redirect"] == "/quotas/changes"
    assert gpus()["vision"] == 2000
    assert f"reverted by change {change.pk + 1}" in bob.get("/quotas/changes").content.decode()
    again = bob.get(address)
    assert again.status_code == 200
    assert bob.post(address).status_code == 409


@pytest.mark.heavy
def test_new_quota_is_listed_as_created(cast: Cast, sign_in: SignIn) -> None:
    Quota.objects.filter(project=cast.vision).delete()
    quotas.set_quota(actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 1})
    page = sign_in("bob").get("/quotas/changes")
    assert "<span>created</span>:" in page.content.decode()
    (listed,) = page.context["changes"]
    assert listed.description.startswith("Quota of vision in pool local created: GPUs 1")


@pytest.mark.heavy
def test_superseded_quota_change_cannot_be_reverted(cast_with_quotas: Cast, sign_in: SignIn) -> None:
    for gpu in (1, 3):
        quotas.set_quota(
            actor=cast_with_quotas.alice,
            owner=cast_with_quotas.vision,
            pool=cast_with_quotas.pool,
            values={"gpu": gpu},
        )
    first = QuotaChange.objects.order_by("pk").first()
    assert first is not None
    page = sign_in("bob").post(f"/quotas/changes/{first.pk}/revert", headers=HTMX)
    assert page.status_code == 412
    assert "Changed since your preview: vision in pool local (by alice)" in page.content.decode()
    assert gpus()["vision"] == 3000


def test_role_determines_which_quota_changes_a_user_can_see_and_revert(
    cast_with_quotas: Cast, sign_in: SignIn
) -> None:
    quotas.set_quota(
        actor=cast_with_quotas.alice,
        owner=cast_with_quotas.research,
        pool=cast_with_quotas.pool,
        values={"gpu": 5},
    )
    quotas.set_quota(
        actor=cast_with_quotas.alice,
        owner=cast_with_quotas.vision,
        pool=cast_with_quotas.pool,
        values={"gpu": 1},
    )
    department, project = (change.pk for change in QuotaChange.objects.order_by("pk"))
    seen = {
        "alice": (200, 200),
        "bob": (403, 200),
        "dave": (404, 403),
        "grace": (404, 404),
        "frank": (404, 404),
    }
    for name, (of_department, of_project) in seen.items():
        client = sign_in(name)
        assert client.get(f"/quotas/changes/{department}/revert").status_code == of_department, name
        assert client.get(f"/quotas/changes/{project}/revert").status_code == of_project, name
        text = client.get("/quotas/changes").content.decode()
        assert (f"/quotas/changes/{project}/revert" in text) is (of_project == 200), name
        assert (f"/quotas/changes/{department}/revert" in text) is (of_department == 200), name


def test_quota_changes_are_filtered_by_pool_by_user_and_by_day(cast: Cast, sign_in: SignIn) -> None:
    Quota.objects.filter(project=cast.vision).delete()
    quotas.set_quota(actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 1})
    client, today = sign_in("bob"), timezone.now().date()

    def count(query: str) -> int:
        return len(client.get(f"/quotas/changes?{query}").context["changes"])

    assert count("") == count("pool=local") == count("user=bob") == count(f"since={today}") == 1
    assert count("pool=other") == count("user=alice") == count(f"until={today - timedelta(days=1)}") == 0
    assert "Clear filters" in client.get("/quotas/changes?user=alice").content.decode()
    file = streamed(client.get("/quotas/changes?format=csv&user=bob")).decode()
    assert "Quota of vision in pool local created: GPUs 1" in file and "Over quota" not in file
