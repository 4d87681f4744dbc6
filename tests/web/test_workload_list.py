"""Filters, columns and saved views of the workload list."""

from projects.models import SavedView, Workload
from tests import factories as make
from tests.cast import Cast

HTMX = {"HTTP_HX_REQUEST": "true"}


def three(cast: Cast) -> list[Workload]:
    mine = [make.workload(cast.vision, f"w{n}", by=cast.dave.user) for n in range(2)]
    return [*mine, make.workload(cast.vision, "carols", by=cast.carol.user)]


def test_several_are_cancelled_together_after_one_has_seen_which(cast: Cast, sign_in) -> None:
    rows = three(cast)
    chosen = {"w": [str(row.pk) for row in rows]}
    asked = sign_in("dave").get("/workloads/cancel", chosen, **HTMX).content.decode()
    assert (
        "Cancel 2 workloads?" in asked
        and "w0" in asked
        and "does not allow you to cancel 1 other workload" in asked
    )
    assert set(Workload.objects.values_list("phase", flat=True)) == {"pending"}
    done = sign_in("dave").post("/workloads/cancel", chosen, **HTMX)
    assert "2 workloads cancelled" in done.headers["HX-Trigger"]
    assert {row.name: row.phase for row in Workload.objects.all()} == {
        "w0": "cancelled", "w1": "cancelled", "carols": "pending",
    }  # fmt: skip


def test_what_one_does_not_see_or_has_ended_is_not_cancelled(cast: Cast, sign_in) -> None:
    rows = three(cast)
    chosen = {"w": [str(rows[0].pk), "nonsense"]}
    assert "Nothing to cancel" in sign_in("grace").get("/workloads/cancel", chosen, **HTMX).content.decode()
    sign_in("grace").post("/workloads/cancel", chosen, **HTMX)
    assert Workload.objects.filter(phase="pending").count() == 3


def test_columns_are_chosen_in_the_address(cast: Cast, sign_in) -> None:
    three(cast)
    usual = sign_in("erin").get("/workloads").content.decode()
    assert "Status" in usual and ">Department<" not in usual.partition("<table")[2]
    shaped = sign_in("erin").get("/workloads?columns=gpus&columns=department").content.decode()
    table = shaped.partition("<table")[2]
    assert "research" in table and "Status" not in table
    assert "Status" in sign_in("erin").get("/workloads?columns=none").content.decode()


def test_a_view_is_one_s_own_and_opens_the_list_as_it_was(cast: Cast, sign_in) -> None:
    erin = sign_in("erin")
    asked = erin.get("/workloads/views/new?state=ended&columns=gpus&cursor=abc", **HTMX).content.decode()
    assert "state=ended&amp;columns=gpus" in asked
    saved = {"name": "Done", "query": "state=ended&columns=gpus&cursor=abc"}
    assert erin.post("/workloads/views/new", saved, **HTMX).headers["HX-Redirect"].endswith("columns=gpus")
    view = SavedView.objects.get()
    assert (view.user, view.query) == (cast.erin.user, "state=ended&columns=gpus")
    assert "Done" in erin.get("/workloads").content.decode()
    assert "Done" not in sign_in("dave").get("/workloads").content.decode()
    assert sign_in("dave").post(f"/workloads/views/{view.pk}/delete").status_code == 404
    erin.post("/workloads/views/new", {"name": "Done", "query": "state=all"}, **HTMX)
    assert SavedView.objects.get().query == "state=all"
    assert erin.post(f"/workloads/views/{view.pk}/delete", **HTMX).status_code == 204
    assert not SavedView.objects.exists()


def test_a_view_without_a_name_is_refused_beside_the_field(sign_in) -> None:
    answer = sign_in("erin").post("/workloads/views/new", {"name": " ", "query": ""}, **HTMX)
    assert answer.status_code == 422
