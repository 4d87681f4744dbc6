"""Tests for the quota grid: all pools, drafts and conflicts."""

import csv
import io
import json
import re
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from pools.models import Node, NodePool
from projects.models import Department, Project, Quota, QuotaChange, QuotaExpiry
from projects.services import quotas
from projects.web.quotas.cells import NO_QUOTA
from tests import factories as make
from tests.cast import Cast
from tests.support.present import present
from tests.web.conftest import SignIn, streamed

GRID_URL = "/quotas/grid"


@pytest.fixture
def spot(cast: Cast) -> NodePool:
    """Create the pool spot, and quotas: research 4 and vision 2 GPUs in local, vision 1 GPU in spot."""
    make.quota(cast.research, cast.pool, 4)
    make.quota(cast.vision, cast.pool, 2)
    pool = make.pool("spot")
    make.quota(cast.vision, pool, 1, rank=3)
    make.node(cast.pool)
    return pool


def row_key(owner: Department | Project) -> str:
    return f"{owner._meta.model_name}-{owner.pk}"


def draft_form(
    cells: list[tuple[Any, str, str, str]], versions: dict[str, str] | None = None
) -> dict[str, str]:
    named = [[row_key(owner), pool, field, text] for owner, pool, field, text in cells]
    if versions is None:
        current = {
            f"{row_key(row.owner)}/{present(row.pool).name}": f"{row.pk}.{row.version}"
            for row in Quota.objects.select_related("project", "department", "pool")
        }
        versions = {f"{owner}/{pool}": current.get(f"{owner}/{pool}", "0.0") for owner, pool, _, _ in named}
    return {"draft": json.dumps({"cells": named, "versions": versions})}


def gpu_quotas() -> dict[tuple[str, str], int | None]:
    return {(row.owner.name, present(row.pool).name): row.gpu_milli for row in Quota.objects.all()}


def read_export(client: Any, address: str) -> list[list[str]]:
    answer = client.get(address)
    assert answer.status_code == 200
    return list(csv.reader(io.StringIO(streamed(answer).decode())))


def test_grid_shows_departments_and_projects_in_all_pools(
    cast: Cast, spot: NodePool, sign_in: SignIn
) -> None:
    page = sign_in("alice").get("/quotas")
    rows = {row.name: row for row in page.context["rows"]}
    assert list(rows) == ["product", "ads", "search", "research", "speech", "vision"]
    assert [cell.text for cell in rows["vision"].cells] == ["2", "∞", "inherited", "1", "∞", "3"]
    assert [head.pool.name for head in page.context["heads"]] == ["local", "spot"]
    text = page.content.decode()
    assert 'role="grid"' in text and 'aria-rowcount="8"' in text
    assert "<span data-shown>6</span> of 6 rows" in text
    assert "Rank" in text and ">Show weight</a>" in text, "only spot has a rank"
    every = sign_in("alice").get("/quotas?values=gpu&values=weight").content.decode()
    assert "Hide columns with only default values" in every
    assert "Quotas: 4 of 8 GPUs" in re.sub(r"<[^>]+>", "", text), (
        "sum of quotas, and the pool's GPUs at its maximum size"
    )
    Node.objects.update(state="booting")
    booting = re.sub(r"<[^>]+>", "", sign_in("alice").get("/quotas").content.decode())
    assert "Quotas: 4 of 8 GPUs at maximum size (0 ready)" in booting
    assert [head.is_oversubscribed for head in page.context["heads"]] == [False, False]
    research = rows["research"].cells[0]
    assert (research.quota_sum, research.is_oversubscribed) == ("2", False)


def test_oversubscribed_department_is_highlighted(cast: Cast, spot: NodePool, sign_in: SignIn) -> None:
    quotas.set_quota(actor=cast.alice, owner=cast.speech, pool=cast.pool, values={"gpu": 3})
    text = sign_in("bob").get("/quotas").content.decode()
    assert ">5 assigned to projects</span>" in text
    quotas.set_quota(actor=cast.alice, owner=cast.speech, pool=cast.pool, values={"gpu": None})
    assert ">∞ assigned to projects</span>" in sign_in("bob").get("/quotas").content.decode()


def test_grid_begins_with_the_pools_in_use(cast: Cast, spot: NodePool, sign_in: SignIn) -> None:
    def pools() -> list[str]:
        return [head.pool.name for head in sign_in("alice").get("/quotas").context["heads"]]

    assert pools() == ["local", "spot"], "without allocated GPUs, the larger pool or the name decides"
    make.queue_status(cast.vision, spot, share=2, allocated=2, requested=0)
    assert pools() == ["spot", "local"]


def test_grid_shows_allocated_gpus_below_quotas(cast: Cast, spot: NodePool, sign_in: SignIn) -> None:
    make.queue_status(cast.vision, cast.pool, share=2, allocated=1.5, requested=2)
    make.queue_status(cast.research, cast.pool, share=4, allocated=1.5, requested=2)
    make.quota(cast.speech, cast.pool, 4)
    status = make.queue_status(cast.speech, cast.pool, share=2, allocated=2, requested=2)
    status.reserved = [3000, 0, 0]
    status.save()
    answer = sign_in("alice").get("/quotas")
    assert 'data-allocated="2 + 3 reserved" data-held="5000" data-over' in answer.content.decode(), "5 of 4"
    rows = {row.name: row for row in answer.context["rows"]}
    assert [cell.allocated for cell in rows["vision"].cells] == [1500, 0, 0, 0, 0, 0], (
        "other pools are separate"
    )
    assert answer.content.decode().count('data-allocated="1.5 allocated"') == 2
    assert "data-allocated" not in sign_in("grace").get("/quotas").content.decode(), (
        "grace is a member of ads"
    )


@pytest.mark.heavy
def test_query_parameters_filter_and_sort_the_grid(cast: Cast, spot: NodePool, sign_in: SignIn) -> None:
    client = sign_in("alice")
    assert read_export(client, "/quotas?pools=spot&values=gpu&values=memory_mib&format=csv")[0] == [
        "Department", "Project", "spot: Quota (GPUs)", "spot: Quota (MiB)",
    ]  # fmt: skip
    matches = read_export(client, "/quotas?search=vis&values=gpu&format=csv")
    assert matches[1:] == [["research", "", "4", NO_QUOTA], ["research", "vision", "2", "1"]]
    within = read_export(client, "/quotas?department=product&values=gpu&format=csv")
    assert [row[:2] for row in within[1:]] == [["product", ""], ["product", "ads"], ["product", "search"]]
    by_size = read_export(client, "/quotas?department=research&sort=-gpu.local&values=gpu&format=csv")
    assert [row[1] for row in by_size[1:]] == ["", "vision", "speech"]
    for odd in (
        "?pools=none&values=none",
        "?sort=odd",
        "?sort=gpu.none",
        "?rows=x",
        "?rows=99",
        "?search=%00",
    ):
        assert client.get(f"/quotas{odd}").status_code == 200


def test_draft_for_two_pools_is_previewed_and_applied_as_one_change(
    cast: Cast, spot: NodePool, sign_in: SignIn
) -> None:
    bob = sign_in("bob")
    cells = [
        (cast.vision, "local", "gpu", "3"), (cast.vision, "spot", "limit_gpu", "4"),
        (cast.speech, "spot", "gpu", "1.5"), (cast.speech, "spot", "rank", "7"),
    ]  # fmt: skip
    preview = bob.post(GRID_URL, {**draft_form(cells), "do": "preview"})
    text = preview.content.decode()
    assert preview.status_code == 200
    assert "Impact on the next cycle" in text
    assert 'aria-label="In pool spot"' in text
    assert gpu_quotas()["vision", "local"] == 2000, "a preview changes nothing"
    applied = bob.post(GRID_URL, {**draft_form(cells), "do": "apply", "comment": "both grow"}).json()
    assert applied["applied"].startswith("3 quotas saved. Project quotas in research add up to")
    assert applied["warns"]
    assert gpu_quotas() == {
        ("research", "local"): 4000, ("vision", "local"): 3000, ("vision", "spot"): 1000,
        ("speech", "spot"): 1500,
    }  # fmt: skip
    (change,) = QuotaChange.objects.all()
    link = {"text": f"Show change {change.pk}", "href": f"/quotas/changes?change={change.pk}"}
    assert applied["link"] == link
    assert (change.actor, change.comment, len(change.written)) == ("bob", "both grow", 3)
    assert Quota.objects.get(project=cast.speech).rank == 7
    assert Quota.objects.get(project=cast.vision, pool=spot).limit_gpu_milli == 4000
    updated = {(row["owner"], row["pool"]): row["values"]["gpu"] for row in applied["theirs"]}
    assert updated[row_key(cast.speech), "spot"] == "1.5"


@pytest.mark.heavy
def test_missing_quota_differs_from_a_quota_of_zero(cast: Cast, spot: NodePool, sign_in: SignIn) -> None:
    quotas.set_quota(actor=cast.alice, owner=cast.speech, pool=cast.pool, values={"gpu": 0})
    page = sign_in("alice").get("/quotas?department=research&values=gpu,cpu")
    rows = {row.name: [cell.text for cell in row.cells] for row in page.context["rows"]}
    assert rows["speech"] == ["0", "∞", NO_QUOTA, NO_QUOTA]
    assert 'title="No quota"' in page.content.decode()
    (research, *_) = read_export(sign_in("alice"), "/quotas?department=research&values=gpu&format=csv")[1:]
    assert research == ["research", "", "4", NO_QUOTA]


def test_message_after_an_applied_draft_includes_the_oversubscription(
    cast: Cast, spot: NodePool, sign_in: SignIn
) -> None:
    sent = draft_form([(cast.speech, "local", "gpu", "3")])
    answer = sign_in("alice").post(GRID_URL, {**sent, "do": "apply"})
    assert answer.json()["applied"].startswith(
        "1 quota saved. Project quotas in research add up to 5 GPUs, more than the department's own quota"
    )


def test_draft_sets_and_deletes_quotas_and_can_be_reverted(
    cast: Cast, spot: NodePool, sign_in: SignIn
) -> None:
    bob = sign_in("bob")
    cells = [(cast.vision, "local", "gpu", NO_QUOTA), (cast.vision, "spot", "gpu", "3")]
    preview = bob.post(GRID_URL, {**draft_form(cells), "do": "preview"}).content.decode()
    assert "Quota to be deleted, including limit, weight and rank:</span> vision" in preview
    assert gpu_quotas()["vision", "local"] == 2000, "a preview changes nothing"
    question = bob.post(GRID_URL, {**draft_form(cells), "do": "apply"}).json()
    assert "Delete 1 quota?" in question["question"] and "vision in pool local" in question["question"]
    assert gpu_quotas()["vision", "local"] == 2000, "nothing is deleted before the user confirms"
    confirmed = {**draft_form(cells), "do": "apply", "confirmed": question["tag"]}
    applied = bob.post(GRID_URL, confirmed).json()
    assert applied["applied"].startswith("1 quota saved, 1 quota deleted. Project quotas in research")
    assert gpu_quotas() == {("research", "local"): 4000, ("vision", "spot"): 3000}
    updated = {(row["owner"], row["pool"]): row for row in applied["theirs"]}[row_key(cast.vision), "local"]
    assert (updated["version"], set(updated["values"].values())) == ("0.0", {NO_QUOTA})
    change = QuotaChange.objects.get()
    assert [entry["after"] is None for entry in change.written] == [True, False]
    assert bob.post(f"/quotas/changes/{change.pk}/revert").status_code in (200, 302)
    assert gpu_quotas() == {("research", "local"): 4000, ("vision", "local"): 2000, ("vision", "spot"): 1000}


@pytest.mark.heavy
def test_quota_is_not_deleted_if_its_draft_has_an_error_or_conflict(
    cast: Cast, spot: NodePool, sign_in: SignIn
) -> None:
    bob, deleted = sign_in("bob"), (cast.vision, "local", "gpu", "-")
    mixed = bob.post(GRID_URL, {**draft_form([deleted, (cast.vision, "local", "rank", "3")]), "do": "apply"})
    assert mixed.status_code == 422
    assert "other values are set" in mixed.json()["faults"][0]["message"]
    faulty = bob.post(
        GRID_URL, {**draft_form([deleted, (cast.speech, "spot", "gpu", "lots")]), "do": "apply"}
    )
    assert faulty.status_code == 422
    mine = draft_form([deleted])
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"rank": 7})
    overtaken = bob.post(GRID_URL, {**mine, "do": "apply"})
    assert overtaken.status_code == 412
    assert overtaken.json()["theirs"][0]["by"] == "alice"
    assert gpu_quotas()["vision", "local"] == 2000


@pytest.mark.heavy
def test_draft_expiry_is_interpreted_in_the_users_time_zone(
    cast: Cast, spot: NodePool, sign_in: SignIn
) -> None:
    bob, cells = sign_in("bob"), [(cast.vision, "spot", "gpu", "3")]
    bob.cookies["berth_zone"] = "Asia/Tokyo"
    past = bob.post(GRID_URL, {**draft_form(cells), "do": "apply", "until": "2020-01-01T09:00"})
    assert past.status_code == 422
    assert past.json()["faults"] == [{"until": "This time is in the past. Enter a later time."}]
    late = bob.post(GRID_URL, {**draft_form(cells), "do": "apply", "until": "2999-01-01T09:00"})
    assert late.json()["faults"] == [{"until": "Enter a time within the next 366 days."}]
    tomorrow = (timezone.now() + timedelta(days=1)).replace(second=0, microsecond=0)
    typed = tomorrow.astimezone(ZoneInfo("Asia/Tokyo")).strftime("%Y-%m-%dT%H:%M")
    assert "applied" in bob.post(GRID_URL, {**draft_form(cells), "do": "apply", "until": typed}).json()
    expiry = QuotaExpiry.objects.get()
    assert (expiry.change.written[0]["name"], expiry.due_at) == ("vision", tomorrow)
    assert "expires" in bob.get("/quotas/changes").content.decode()


@pytest.mark.parametrize(
    ("field", "text", "words"),
    [
        ("gpu", "lots", "“lots” is not valid. Enter a number from 0 in steps of 0.001, such as 8 or 0.5"),
        ("gpu", "-1", "“-1” is not valid. Enter a number from 0 in"),
        ("gpu", "", "A value is required. Enter a number from 0"),
        ("gpu", "none", "Enter a number from 0"),
        ("gpu", "0.0001", "in steps of 0.001"),
        ("limit_gpu", "1", "at most 1"),
        ("weight", "", "A value is required. Enter a number from 0 to 1,000,000."),
        ("rank", "5000", "“5000” is not valid. Enter a whole number from -1000 to 1000, or inherited."),
        ("rank", "1.5", "“1.5” is not valid."),
        ("over_quota", "maybe", "Enter yes or no."),
        ("memory_mib", "1.5", "Enter a whole number from 0, such as 1024, or ∞ for unlimited."),
    ],
)
def test_error_names_the_invalid_cell_and_the_allowed_values(
    cast: Cast, spot: NodePool, sign_in: SignIn, field: str, text: str, words: str
) -> None:
    cells = [(cast.vision, "local", field, text), (cast.speech, "spot", "gpu", "1")]
    for do in ("preview", "apply"):
        answer = sign_in("bob").post(GRID_URL, {**draft_form(cells), "do": do})
        assert answer.status_code == 422
        (fault,) = answer.json()["faults"]
        assert (fault["owner"], fault["pool"]) == (row_key(cast.vision), "local")
        assert words in fault["message"]
        assert "vision in pool local" in fault["cell"]
    assert ("speech", "spot") not in gpu_quotas(), "all or nothing"


def test_conflicting_draft_shows_the_other_change_and_stores_nothing(
    cast: Cast, spot: NodePool, sign_in: SignIn
) -> None:
    cells = [(cast.vision, "local", "gpu", "3"), (cast.speech, "spot", "gpu", "1")]
    mine = draft_form(cells)
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=cast.pool, values={"gpu": 5, "rank": 7})
    for do in ("preview", "apply"):
        answer = sign_in("bob").post(GRID_URL, {**mine, "do": do})
        assert answer.status_code == 412
        (theirs,) = answer.json()["theirs"]
        assert (theirs["by"], theirs["values"]["gpu"], theirs["values"]["rank"]) == ("alice", "5", "7")
    assert gpu_quotas()["vision", "local"] == 5000
    again = draft_form(cells)
    assert json.loads(again["draft"])["versions"][f"{row_key(cast.vision)}/local"] == theirs["version"]
    assert "applied" in sign_in("bob").post(GRID_URL, {**again, "do": "apply"}).json()
    assert (gpu_quotas()["vision", "local"], Quota.objects.get(project=cast.vision, pool=cast.pool).rank) == (
        3000,
        7,
    )


def test_grid_updates_include_only_visible_quotas(cast: Cast, spot: NodePool, sign_in: SignIn) -> None:
    client = sign_in("dave")
    latest = client.get("/quotas").context["latest"]
    quotas.set_quota(actor=cast.alice, owner=cast.vision, pool=spot, values={"gpu": 9})
    quotas.set_quota(actor=cast.alice, owner=cast.ads, pool=spot, values={"gpu": 8})
    quotas.remove_quota(actor=cast.alice, quota=Quota.objects.get(project=cast.vision, pool=cast.pool))
    updates = client.get(f"/quotas/updates?after={latest}").json()
    assert {(row["owner"], row["pool"], row["values"]["gpu"], row["by"]) for row in updates["theirs"]} == {
        (row_key(cast.vision), "spot", "9", "alice"), (row_key(cast.vision), "local", NO_QUOTA, "alice"),
    }  # fmt: skip
    assert client.get(f"/quotas/updates?after={updates['latest']}").json()["theirs"] == []
    assert client.get("/quotas/updates?after=x").status_code == 200


def test_draft_requires_permission_for_every_quota(cast: Cast, spot: NodePool, sign_in: SignIn) -> None:
    own, others = [(cast.research, "local", "gpu", "9")], [(cast.ads, "local", "gpu", "9")]
    bob = sign_in("bob")
    assert bob.post(GRID_URL, {**draft_form(own), "do": "apply"}).status_code == 403
    assert bob.post(GRID_URL, {**draft_form(others), "do": "apply"}).status_code == 422, (
        "bob does not see ads"
    )
    mine = [(cast.vision, "local", "gpu", "9")]
    for name in ("carol", "dave", "erin"):
        assert sign_in(name).post(GRID_URL, {**draft_form(mine), "do": "apply"}).status_code == 403
    for name in ("grace", "frank"):
        assert sign_in(name).post(GRID_URL, {**draft_form(mine), "do": "apply"}).status_code == 422
    assert gpu_quotas()["vision", "local"] == 2000
    assert "data-edit" not in sign_in("dave").get("/quotas").content.decode()
    names = {row.name for row in sign_in("dave").get("/quotas").context["rows"]}
    assert names == {"research", "vision"}
    hidden = next(row for row in sign_in("dave").get("/quotas").context["rows"] if row.name == "research")
    assert not hidden.numbers_visible
    exported = read_export(sign_in("dave"), "/quotas?values=gpu&format=csv")
    assert [row[1] for row in exported[1:]] == ["", "vision"]
    assert exported[1][2:] == ["", ""], "values of a partly visible department are hidden"


@pytest.mark.parametrize(
    "draft", ["", "x", "[]", "{}", '{"cells": [[1]], "versions": {}}', '{"cells": [], "versions": {}}',
              '{"cells": [["project-1", "local", "odd", "1"]], "versions": {}}',
              '{"cells": [["x-9", "local", "gpu", "1"]], "versions": {}}',
              '{"cells": [["project-99999999999999999999", "local", "gpu", "1"]], "versions": {}}'],
)  # fmt: skip
def test_malformed_draft_is_rejected(cast: Cast, spot: NodePool, sign_in: SignIn, draft: str) -> None:
    answer = sign_in("alice").post(GRID_URL, {"draft": draft, "do": "apply"})
    assert answer.status_code == 422
    assert answer.json()["faults"]


@pytest.mark.heavy
def test_large_grid_is_loaded_in_batches(cast: Cast, sign_in: SignIn) -> None:
    pools = [cast.pool, *(make.pool(f"pool-{n}") for n in range(4))]
    tops = Department.objects.bulk_create(Department(name=f"top-{n:02}") for n in range(20))
    inner = Project.objects.bulk_create(
        Project(name=f"many-{n:04}", department=tops[n % 20]) for n in range(1000)
    )
    Quota.objects.bulk_create(
        Quota(project=project, pool=pool, gpu_milli=1000) for project in inner for pool in pools
    )
    client = sign_in("alice")
    client.get("/quotas")
    with CaptureQueriesContext(connection) as queries:
        page = client.get("/quotas")
    assert len(queries) < 25
    assert len(page.content) < 100_000
    assert len(page.context["rows"]) == 60
    assert page["X-Next-Rows"] == "60"
    rest = client.get("/quotas?rows=60", headers={"HX-Request": "true"})
    assert rest.content.decode().count("<tr ") == 60
    assert 'aria-rowindex="63"' in rest.content.decode()
    last = client.get("/quotas?rows=1020", headers={"HX-Request": "true"})
    assert last["X-Next-Rows"] == ""
