"""Tests for the page of quota changes and for reverting changes."""

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from pools.models import Node
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
    answer = bob.post(address, headers=HTMX)
    assert "HX-Redirect" not in answer, "the open list keeps its filters"
    assert f"Change {change.pk} reverted by change {change.pk + 1}." in answer["HX-Trigger"]
    assert gpus()["vision"] == 2000
    assert f"Reverted by {change.pk + 1}</a>" in bob.get("/quotas/changes").content.decode()
    again = bob.get(address, headers=HTMX)
    assert again.status_code == 409
    assert f"Change {change.pk} has already been reverted by" in again.content.decode()
    assert "<button" not in again.content.decode(), "nothing is left to revert"
    assert bob.post(address).status_code == 409


@pytest.mark.heavy
def test_new_quota_is_listed_as_created(cast: Cast, sign_in: SignIn) -> None:
    Quota.objects.filter(project=cast.vision).delete()
    quotas.set_quota(actor=cast.bob, owner=cast.vision, pool=cast.pool, values={"gpu": 1})
    page = sign_in("bob").get("/quotas/changes")
    assert "<span>created</span>:" in page.content.decode()
    (listed,) = page.context["changes"]
    assert listed.description.startswith("Quota of vision in pool local created: GPUs 1")


def set_vision(cast: Cast, gpu: int) -> QuotaChange:
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": gpu})
    return QuotaChange.objects.latest("pk")


def test_superseded_quota_change_links_to_the_later_change_instead_of_offering_a_revert(
    cast_with_quotas: Cast, sign_in: SignIn
) -> None:
    first, _, last = (set_vision(cast_with_quotas, gpu) for gpu in (1, 3, 4))
    bob = sign_in("bob")
    listed = bob.get("/quotas/changes").content.decode()
    assert listed.count(f'href="/quotas/changes?change={last.pk}">Changed again by {last.pk}</a>') == 2
    assert re.findall(r'href="/quotas/changes/(\d+)/revert"', listed) == [str(last.pk)]
    assert last in [row.change for row in bob.get(f"/quotas/changes?change={last.pk}").context["changes"]]
    for verb in (bob.get, bob.post):
        answer = verb(f"/quotas/changes/{first.pk}/revert", headers=HTMX)
        text = answer.content.decode()
        assert answer.status_code == 412
        assert f"its quotas were changed again: vision in pool local (change {last.pk} by alice)." in text
        assert "Impact on the next cycle" not in text and "<button" not in text
    assert gpus()["vision"] == 4000


def test_change_is_superseded_if_its_quota_was_deleted_and_set_again(
    cast_with_quotas: Cast, sign_in: SignIn
) -> None:
    cast, change = cast_with_quotas, set_vision(cast_with_quotas, 1)
    quotas.remove_quota(actor=cast.alice, quota=Quota.objects.get(project=cast.vision))
    removal = QuotaChange.objects.latest("pk")
    bob = sign_in("bob")
    assert f"Changed again by {removal.pk}<" in bob.get("/quotas/changes").content.decode()
    last = set_vision(cast, 5)
    listed = {row.change.pk: row.superseded_by for row in bob.get("/quotas/changes").context["changes"]}
    assert listed == {change.pk: last.pk, removal.pk: last.pk, last.pk: None}


def test_revert_dialog_shows_the_values_after_the_revert(cast_with_quotas: Cast, sign_in: SignIn) -> None:
    bob, change = sign_in("bob"), set_vision(cast_with_quotas, 1)
    dialog = bob.get(f"/quotas/changes/{change.pk}/revert", headers=HTMX).content.decode()
    result = dialog.partition("Values after the revert")[2].partition("</section>")[0]
    assert '<span class="soft">1</span> → <strong class="strong">2</strong>' in result
    assert '<span class="soft">2</span> → <strong class="strong">1</strong>' not in dialog
    quota = Quota.objects.get(project=cast_with_quotas.vision)
    quotas.remove_quota(actor=cast_with_quotas.alice, quota=quota)
    removal = QuotaChange.objects.latest("pk")
    dialog = bob.get(f"/quotas/changes/{removal.pk}/revert", headers=HTMX).content.decode()
    result = dialog.partition("Values after the revert")[2].partition("</section>")[0]
    assert "<span>restored</span>" in result and '<strong class="strong">1</strong>' in result


def test_viewer_sees_no_hint_about_reverting_changes(cast_with_quotas: Cast, sign_in: SignIn) -> None:
    set_vision(cast_with_quotas, 1)
    assert "You can revert a change" in sign_in("bob").get("/quotas/changes").content.decode()
    assert "You can revert a change" not in sign_in("dave").get("/quotas/changes").content.decode()


def test_revert_dialog_shows_a_change_applied_after_it_was_opened(
    cast_with_quotas: Cast, sign_in: SignIn
) -> None:
    change = set_vision(cast_with_quotas, 1)
    bob, address = sign_in("bob"), f"/quotas/changes/{change.pk}/revert"
    assert "Revert change</button>" in bob.get(address, headers=HTMX).content.decode()
    later = set_vision(cast_with_quotas, 3)
    text = bob.post(address, headers=HTMX).content.decode()
    assert f"vision in pool local (change {later.pk} by alice). Edit the quotas instead." in text
    assert f"Show change {later.pk}</a>" in text and "Revert change</button>" not in text


def test_revert_dialog_names_the_workload_that_would_be_evicted(
    cast_with_quotas: Cast, sign_in: SignIn
) -> None:
    cast = cast_with_quotas
    change = set_vision(cast, 0)
    holder = make.workload(
        cast.speech, "holder", phase="running", gpus=1, replicas=2, run=1, started_at=make.ago(minutes=30)
    )
    node = Node.objects.get(pool=cast.pool)
    for device in range(2):
        make.place(holder, node, [device])
    text = sign_in("bob").get(f"/quotas/changes/{change.pk}/revert", headers=HTMX).content.decode()
    assert re.search(r'<span class="apart bad">Evicts speech/holder \(2 GPUs, [^<]+ work lost\)</span>', text)
    assert '<button class="button danger">Revert change</button>' in text


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


def test_quota_changes_are_filtered_by_pool_user_and_day(cast: Cast, sign_in: SignIn) -> None:
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
