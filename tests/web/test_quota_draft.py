"""Quota drafts on a page, and reverting changes."""

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from projects.models import Lapse, Quota, QuotaChange
from projects.services import quotas
from tests import factories as make
from tests.cast import Cast

HTMX = {"HTTP_HX_REQUEST": "true"}
ADDRESS = "/quotas/draft?pool=local"


@pytest.fixture
def divided(cast: Cast) -> Cast:
    """Vision has a quota of 2, speech none, research 4; vision waits for what it has no room for yet."""
    make.quota(cast.research, cast.pool, 4)
    make.quota(cast.vision, cast.pool, 2)
    make.node(cast.pool)
    make.workload(cast.vision, "waits", gpus=1, replicas=2)
    return cast


def filled(page: Any, **typed: str) -> dict[str, str]:
    """The form as the page holds it; `vision__gpu=3` types over a cell."""
    data = {}
    for row in page.context["rows"]:
        for name in row.form.fields if row.form else ():
            bound = row.form[name]
            value = bound.value()
            key = f"{row.line.owner.name}__{name}"
            data[bound.html_name] = typed.pop(key, "" if value is None else str(value))
    assert not typed, "every cell that is typed into is there"
    return data


def gpus() -> dict[str, int | None]:
    return {row.owner.name: row.gpu_milli for row in Quota.objects.all()}


def test_what_is_typed_is_previewed_and_applied_together(divided: Cast, sign_in: Any) -> None:
    bob = sign_in("bob")
    page = bob.get(ADDRESS)
    data = filled(page, vision__gpu="3", speech__gpu="1", speech__limit_gpu="2", speech__rank="5")
    told = bob.post(ADDRESS, {**data, "do": "preview"}, **HTMX)
    text = told.content.decode()
    assert told.status_code == 200
    assert "What the next cycle would do differently" in text
    assert "Apply 2 changes" in text
    assert 'data-seen="2"' in text
    assert text.count("cell changed") == 4
    assert gpus() == {"research": 4000, "vision": 2000}
    applied = bob.post(ADDRESS, {**data, "do": "apply", "note": "speech begins"}, **HTMX)
    assert (applied.status_code, applied["HX-Redirect"]) == (204, "/quotas?pool=local")
    assert gpus() == {"research": 4000, "vision": 3000, "speech": 1000}
    (change,) = QuotaChange.objects.all()
    assert (change.actor, change.note, len(change.written)) == ("bob", "speech begins", 2)
    speech = Quota.objects.get(project=divided.speech)
    assert (speech.limit_gpu_milli, speech.rank, speech.cpu_milli) == (2000, 5, None)


def test_a_draft_may_be_for_a_while_in_the_reader_s_zone(divided: Cast, sign_in: Any) -> None:
    bob = sign_in("bob")
    bob.cookies["berth_zone"] = "Asia/Tokyo"
    data = {**filled(bob.get(ADDRESS), vision__gpu="3"), "do": "apply"}
    past = bob.post(ADDRESS, {**data, "until": "2020-01-01T09:00"}, **HTMX)
    assert (past.status_code, "is not a time to come" in past.content.decode()) == (422, True)
    tomorrow = timezone.now() + timedelta(days=1)
    said = tomorrow.astimezone(ZoneInfo("Asia/Tokyo")).strftime("%Y-%m-%dT%H:%M")
    assert bob.post(ADDRESS, {**data, "until": said}, **HTMX).status_code == 204
    assert Lapse.objects.get().due_at == tomorrow.replace(second=0, microsecond=0)
    assert "goes back by itself" in bob.get("/quotas/changes").content.decode()


def test_without_scripts_it_is_one_form(divided: Cast, sign_in: Any) -> None:
    bob = sign_in("bob")
    text = bob.get(ADDRESS).content.decode()
    assert "<html" in text
    assert text.count('name="do"') == 2
    applied = bob.post(ADDRESS, {**filled(bob.get(ADDRESS), vision__weight="2"), "do": "apply"})
    assert (applied.status_code, applied["Location"]) == (302, "/quotas?pool=local")
    assert Quota.objects.get(project=divided.vision).weight_gpu == 2


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"vision__gpu": "lots"}, "Enter a number"),
        ({"vision__gpu": "-1"}, "0 to"),
        ({"vision__gpu": "9", "vision__limit_gpu": "4"}, "at most 4"),
        ({"vision__weight": ""}, "required"),
        ({"vision__rank": "5000"}, "1000"),
    ],
)
def test_a_fault_stands_beside_its_cell_and_the_draft_stays(
    divided: Cast, sign_in: Any, typed: dict[str, str], words: str
) -> None:
    bob = sign_in("bob")
    for do in ("preview", "apply"):
        page = bob.post(ADDRESS, {**filled(bob.get(ADDRESS), speech__gpu="1", **typed), "do": do}, **HTMX)
        text = page.content.decode()
        assert page.status_code == 422
        assert 'aria-invalid="true"' in text
        assert words in text
        assert {row.line.owner.name: row.form["gpu"].value() for row in page.context["rows"] if row.form}[
            "speech"
        ] == "1"
    assert gpus() == {"research": 4000, "vision": 2000}


def test_what_somebody_changed_meanwhile_stands_beside_ones_own(divided: Cast, sign_in: Any) -> None:
    bob = sign_in("bob")
    data = filled(bob.get(ADDRESS), vision__gpu="3", speech__gpu="1")
    quotas.set_quota(
        acting=divided.alice, owner=divided.vision, pool=divided.pool, values={"gpu": 5, "rank": 7}
    )
    page = bob.post(ADDRESS, {**data, "do": "apply"}, **HTMX)
    text = page.content.decode()
    assert page.status_code == 412
    assert "Somebody was faster." in text
    assert "changed by alice meanwhile" in text
    assert "is now 5" in text
    assert gpus() == {"research": 4000, "vision": 5000}, "all or nothing"
    (vision,) = (row for row in page.context["rows"] if row.line.owner == divided.vision)
    assert (vision.form["gpu"].value(), vision.form["rank"].value()) == ("3", "7"), (
        "what was not typed is theirs"
    )
    applied = bob.post(ADDRESS, {**filled(page), "do": "apply"}, **HTMX)
    assert applied.status_code == 204
    assert gpus() == {"research": 4000, "vision": 3000, "speech": 1000}
    assert Quota.objects.get(project=divided.vision).rank == 7


def test_nothing_typed_changes_nothing(divided: Cast, sign_in: Any) -> None:
    bob = sign_in("bob")
    page = bob.post(ADDRESS, {**filled(bob.get(ADDRESS)), "do": "apply"}, **HTMX)
    assert (page.status_code, "Nothing is changed yet." in page.content.decode()) == (422, True)
    assert not QuotaChange.objects.exists()


def test_nobody_edits_what_is_not_theirs_to_set(divided: Cast, sign_in: Any) -> None:
    """Bob divides his department; its own quota and other departments' he cannot even send."""
    row = {"gpu": "9", "weight": "1", "version": "1.1", "seen": "{}"}
    forged = {f"department-{divided.research.pk}-{name}": value for name, value in row.items()}
    bob = sign_in("bob")
    assert bob.post(ADDRESS, {**forged, "do": "apply"}, **HTMX).status_code == 422
    assert gpus()["research"] == 4000
    names = {row.line.owner.name for row in bob.get(ADDRESS).context["rows"]}
    assert names == {"research", "vision", "speech"}
    for name in ("carol", "dave", "erin", "grace", "frank"):
        assert sign_in(name).get(ADDRESS).status_code == 403
        assert sign_in(name).post(ADDRESS, forged).status_code == 403
        assert "Edit several" not in sign_in(name).get("/quotas?pool=local").content.decode()
    assert "Edit several" in bob.get("/quotas?pool=local").content.decode()
    assert bob.get("/quotas/draft?pool=nowhere").status_code == 404


def test_what_is_garbled_is_refused_and_never_stored(divided: Cast, sign_in: Any) -> None:
    bob, key = sign_in("bob"), f"project-{divided.vision.pk}"
    for row in (
        {"version": "x-y-z", "seen": "{}", "gpu": "1", "weight": "1"},
        {"version": "1.1", "seen": "[1]", "gpu": "1", "weight": "1"},
        {"version": "1.1", "seen": "{broken", "gpu": "1", "weight": "1"},
        {"version": "\x00", "seen": "{}", "gpu": "nan", "weight": "inf"},
        {"version": "", "seen": "", "gpu": "", "weight": ""},
    ):
        page = bob.post(ADDRESS, {f"{key}-{name}": value for name, value in row.items()} | {"do": "apply"})
        assert page.status_code in (412, 422), row
    assert gpus() == {"research": 4000, "vision": 2000}


def test_a_change_is_taken_back_after_seeing_what_that_does(divided: Cast, sign_in: Any) -> None:
    bob = sign_in("bob")
    quotas.set_quota(acting=divided.bob, owner=divided.vision, pool=divided.pool, values={"gpu": 0})
    change = QuotaChange.objects.get()
    listed = bob.get("/quotas/changes").content.decode()
    address = f"/quotas/changes/{change.pk}/undo"
    assert f'href="{address}"' in listed
    assert '<span class="soft">2</span> → <strong class="strong">0</strong>' in listed
    asked = bob.get(address, **HTMX).content.decode()
    assert f"Take back change {change.pk}?" in asked
    assert "What the next cycle would do differently" in asked
    assert gpus()["vision"] == 0, "looking changes nothing"
    assert bob.post(address, **HTMX)["HX-Redirect"] == "/quotas/changes"
    assert gpus()["vision"] == 2000
    assert f"taken back by {change.pk + 1}" in bob.get("/quotas/changes").content.decode()
    again = bob.get(address)
    assert again.status_code == 200
    assert bob.post(address).status_code == 409


def test_a_change_that_was_overtaken_is_not_taken_back(divided: Cast, sign_in: Any) -> None:
    for gpu in (1, 3):
        quotas.set_quota(acting=divided.alice, owner=divided.vision, pool=divided.pool, values={"gpu": gpu})
    first = QuotaChange.objects.order_by("pk").first()
    assert first is not None
    page = sign_in("bob").post(f"/quotas/changes/{first.pk}/undo", **HTMX)
    assert page.status_code == 412
    assert "Somebody was faster: vision on local (by alice)" in page.content.decode()
    assert gpus()["vision"] == 3000


def test_of_changes_everybody_reads_what_they_see_and_takes_back_what_they_may_set(
    divided: Cast, sign_in: Any
) -> None:
    quotas.set_quota(acting=divided.alice, owner=divided.research, pool=divided.pool, values={"gpu": 5})
    quotas.set_quota(acting=divided.alice, owner=divided.vision, pool=divided.pool, values={"gpu": 1})
    department, project = (each.pk for each in QuotaChange.objects.order_by("pk"))
    seen = {
        "alice": (200, 200),
        "bob": (403, 200),
        "dave": (404, 403),
        "grace": (404, 404),
        "frank": (404, 404),
    }
    for name, (of_department, of_project) in seen.items():
        client = sign_in(name)
        assert client.get(f"/quotas/changes/{department}/undo").status_code == of_department, name
        assert client.get(f"/quotas/changes/{project}/undo").status_code == of_project, name
        text = client.get("/quotas/changes").content.decode()
        assert (f"/quotas/changes/{project}/undo" in text) is (of_project == 200), name
        assert (f"/quotas/changes/{department}/undo" in text) is (of_department == 200), name
