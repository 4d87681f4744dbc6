"""Tests for the usage page: sums, cost, export and budgets."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from berth.server.web.charts.columns import stacked_columns
from berth.server.web.charts.hues import project_hue
from projects.models import Budget, Membership, Project
from projects.services.quotas import budgets
from scheduler.models import UsageHour
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, streamed

HTMX = {"HX-Request": "true"}


@pytest.fixture
def usage_hours(cast: Cast) -> None:
    """Create eight GPU-hours for vision and two for ads, all used an hour ago."""
    cast.pool.price_per_gpu_hour = Decimal("2.50")
    cast.pool.save()
    at = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    for project, person, hours in ((cast.vision, "dave", 8), (cast.ads, "grace", 2)):
        UsageHour.objects.create(
            hour=at, pool_id=cast.pool.pk, pool_name="local", department_id=project.department_id,
            department_name=project.department.name, project_id=project.pk, project_name=project.name,
            user_name=person, gpu_milli_seconds=hours * 3_600_000,
        )  # fmt: skip


@pytest.mark.usefixtures("usage_hours")
def test_usage_totals_cover_only_visible_projects(sign_in: SignIn) -> None:
    everything = sign_in("alice").get("/usage?span=24h").content.decode()
    assert "10.0" in everything and "25.00" in everything and "vision" in everything and "ads" in everything
    own = sign_in("erin").get("/usage?span=24h").content.decode()
    assert "20.00" in own and "25.00" not in own
    assert "No usage" in sign_in("frank").get("/usage?span=24h").content.decode()


@pytest.mark.usefixtures("usage_hours")
def test_usage_is_compared_with_the_previous_period(cast: Cast, sign_in: SignIn) -> None:
    client = sign_in("alice")
    assert "the previous period" not in client.get("/usage?span=24h").content.decode()
    for row in UsageHour.objects.all():
        row.pk, row.hour, row.gpu_milli_seconds = (
            None,
            row.hour - timedelta(hours=24),
            row.gpu_milli_seconds // 2,
        )
        row.save()
    page = client.get("/usage?span=24h").content.decode()
    assert page.count("100% more than in the previous period") == 2  # once for GPU-hours and once for cost


@pytest.mark.usefixtures("usage_hours")
def test_measured_usage_and_idle_hours_cover_only_visible_projects(cast: Cast, sign_in: SignIn) -> None:
    for project, busy in ((cast.vision, 25), (cast.ads, 50)):
        work = make.workload(project, f"run-{project.name}", phase="running", run=1)
        pod = make.place(work, make.node(cast.pool), [0])
        make.past_utilization(pod, make.ago(hours=1), step=3600, gpus=4, busy=busy)
    everything = sign_in("alice").get("/usage?span=24h").context
    uses = {line.name: line.use for line in everything["lines"]}
    assert (uses["vision"].percent, uses["vision"].idle) == (25, 3)
    assert (uses["ads"].percent, uses["ads"].idle) == (50, 2)
    assert everything["use"].idle == 5
    assert uses["vision"].measured == 4
    text = sign_in("alice").get("/usage?span=24h").content.decode()
    partial = [line.name for line in everything["lines"] if line.is_partly_measured]
    assert text.count('<span class="sub">of 4.0 h measured</span>') == len(partial) > 0
    page = sign_in("erin").get("/usage?span=24h")
    assert page.context["use"].idle == 3
    assert "/workloads?project=vision&amp;state=all" in page.content.decode()


@pytest.mark.heavy
@pytest.mark.usefixtures("usage_hours")
def test_chart_has_a_readout_and_marks_partial_periods(sign_in: SignIn) -> None:
    page = sign_in("alice").get("/usage?span=7d")
    chart = page.context["chart"]
    assert chart.has_partial and chart.names == "vision|ads"
    readouts = json.loads(chart.readouts)
    assert [sum(column) for column in list(zip(*readouts, strict=True))[1:]] == [8, 2]
    assert "partial day" in page.content.decode()


@pytest.mark.heavy
@pytest.mark.usefixtures("usage_hours")
def test_any_time_range_and_step_is_accepted(sign_in: SignIn) -> None:
    client = sign_in("alice")
    client.cookies["berth_zone"] = (
        "Australia/Lord_Howe"  # this zone's offset and daylight saving shift both include half an hour
    )
    spans = [(span, "") for span in ("24h", "7d", "month", "last", "90d", "12m", "forever", "")]
    steps = [("7d", step) for step in ("hour", "day", "week", "month", "blink")]
    for span, step in (*spans, *steps, ("12m", "month"), ("90d", "week")):
        answer = client.get("/usage", {"span": span, "step": step, "by": "user", "pool": "local"})
        assert answer.status_code == 200, (span, step)


@pytest.mark.usefixtures("usage_hours")
def test_search_applies_to_totals_chart_and_export(sign_in: SignIn) -> None:
    client = sign_in("alice")
    context = client.get("/usage?span=24h&step=hour&search=VIS").context
    assert [line.name for line in context["lines"]] == ["vision"]
    assert context["total"].gpu_hours == sum(piece.used.gpu_hours for piece in context["pieces"]) == 8
    by_person = client.get("/usage?span=24h&by=user&search=gra").context
    assert [line.name for line in by_person["lines"]] == ["grace"]
    file = streamed(client.get("/usage?span=24h&search=vis&format=csv")).decode()
    assert "vision" in file and "ads" not in file
    no_matches = client.get("/usage?span=24h&search=%00<script>").content.decode()
    assert "No matches" in no_matches and "<script>" not in no_matches.split("u-search")[1][:200]


@pytest.mark.heavy
@pytest.mark.usefixtures("usage_hours")
def test_values_in_the_usage_chart_add_up_to_the_total(sign_in: SignIn) -> None:
    context = sign_in("alice").get("/usage?span=24h&step=hour").context
    assert sum(piece.used.gpu_hours for piece in context["pieces"]) == context["total"].gpu_hours == 10
    assert [line.name for line in context["lines"]] == ["vision", "ads"]


@pytest.mark.heavy
@pytest.mark.usefixtures("usage_hours")
def test_unknown_time_zone_falls_back_to_utc(sign_in: SignIn) -> None:
    client = sign_in("alice")
    client.cookies["berth_zone"] = "../../etc/passwd"
    assert "UTC time" in client.get("/usage?span=24h").content.decode()


@pytest.mark.usefixtures("usage_hours")
def test_usage_is_exported_as_csv(sign_in: SignIn) -> None:
    shown = sign_in("alice").get("/usage?span=24h&by=user").content.decode()
    assert shown.index("format=csv") < shown.index("<table"), "the download is above the table"
    answer = sign_in("alice").get("/usage?span=24h&by=user&format=csv")
    lines = streamed(answer).decode().split()
    assert lines[0] == "at,user,gpu_hours,cpu_hours,memory_gib_hours,cost"
    assert [line.split(",")[1:3] for line in lines[1:]] == [["dave", "8.0"], ["grace", "2.0"]]


def test_only_admins_can_create_edit_and_delete_a_budget(cast: Cast, sign_in: SignIn) -> None:
    bob = sign_in("bob")
    values = {"owner": "projects/vision", "gpu_hours": "300", "warn_at": "50, 100%", "version": "0"}
    assert bob.post("/budgets/new", values, headers=HTMX).status_code == 204
    budget = Budget.objects.get(project=cast.vision)
    assert (budget.gpu_hours, budget.warn_at) == (300, [50, 100])
    again = bob.post("/budgets/new", values, headers=HTMX)
    assert "already has a budget" in again.content.decode()
    changed = {"gpu_hours": "400", "warn_at": "", "version": str(budget.version)}
    assert bob.post("/budgets/projects/vision", changed, headers=HTMX).status_code == 204
    overtaken = bob.post("/budgets/projects/vision", changed, headers=HTMX)
    assert (overtaken.status_code, "Someone else changed" in overtaken.content.decode()) == (412, True)
    assert sign_in("carol").get("/budgets/projects/vision").status_code == 403
    assert sign_in("grace").get("/budgets/projects/vision").status_code == 404
    assert bob.get("/budgets/departments/research").status_code == 403
    assert bob.post("/budgets/projects/vision/delete", headers=HTMX).status_code == 204
    assert not Budget.objects.exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gpu_hours": "0"}, "&quot;0&quot; is too low. Enter 1 or more."),
        ({"gpu_hours": "9", "warn_at": "soon"}, "whole percentages"),
        ({"gpu_hours": "9", "warn_at": "0"}, "whole percentages, 1 to 200."),
        ({"gpu_hours": "9", "warn_at": "1000"}, "1 to 200"),
    ],
)
def test_invalid_budget_is_rejected_with_an_error(
    sign_in: SignIn, values: dict[str, str], message: str
) -> None:
    answer = sign_in("alice").post("/budgets/projects/vision", {"version": "0", **values}, headers=HTMX)
    assert (answer.status_code, message in answer.content.decode()) == (422, True)


def test_project_members_see_how_much_of_the_budget_is_used(cast: Cast, sign_in: SignIn) -> None:
    budgets.set_budget(actor=cast.alice, owner=cast.vision, values={"gpu_hours": 10})
    UsageHour.objects.create(
        hour=datetime.now(UTC).replace(minute=0, second=0, microsecond=0), pool_id=cast.pool.pk,
        pool_name="local", department_id=cast.research.pk, department_name="research",
        project_id=cast.vision.pk, project_name="vision", user_name="dave", gpu_milli_seconds=5 * 3_600_000,
    )  # fmt: skip
    assert "50%" in sign_in("dave").get("/usage").content.decode()
    assert "No budgets yet" in sign_in("grace").get("/usage").content.decode()


def test_query_count_does_not_grow_with_projects(cast: Cast, sign_in: SignIn) -> None:
    Membership.objects.create(user=cast.grace.user, role="viewer", department=cast.research)
    budgets.set_budget(actor=cast.alice, owner=cast.ads, values={"gpu_hours": 10})
    grace, counts = sign_in("grace"), []
    for more in range(2):
        with CaptureQueriesContext(connection) as queries:
            assert grace.get("/usage").status_code == 200
            assert grace.get("/notifications/new", headers=HTMX).status_code == 200
        counts.append(len(queries))
        for number in range(5):
            project = Project.objects.create(name=f"p{more}{number}", department=cast.research)
            budgets.set_budget(actor=cast.alice, owner=project, values={"gpu_hours": 10})
    assert counts[0] == counts[1]


def test_chart_columns_are_stacked_and_scaled_to_the_highest_column() -> None:
    drawn = stacked_columns([("a", [(3.0, "x"), (0.0, "x")]), ("b", [(1.0, "y"), (4.0, "y")])])
    assert [(piece.kind, piece.y, piece.height) for piece in drawn.pieces] == [
        ("a", 50, 150), ("b", 0, 50), ("b", 0, 200),
    ]  # fmt: skip
    assert [mark for _, mark in drawn.marks] == ["4", "3", "2", "1", "0"]


@pytest.mark.heavy
@pytest.mark.usefixtures("usage_hours")
def test_largest_projects_are_listed_and_the_export_has_all_projects(
    sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.web.usage.pages.MAX_ROWS", 1)
    alice = sign_in("alice")
    answer = alice.get("/usage?span=24h")
    assert [line.name for line in answer.context["lines"]] == ["vision"]
    assert "1 of 2 projects are shown. The CSV file contains all of them." in answer.content.decode()
    file = b"".join(alice.get("/usage?span=24h&format=csv")).decode()
    assert "vision" in file and "ads" in file


@pytest.mark.heavy
def test_budget_list_is_paginated(cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.web.usage.pages.BUDGETS_PER_PAGE", 1)
    for owner in (cast.vision, cast.ads):
        budgets.set_budget(actor=cast.alice, owner=owner, values={"gpu_hours": 10})
    first = sign_in("alice").get("/usage").context
    second = sign_in("alice").get("/usage", {"cursor": first["slice"].next}).context
    assert [row.status.budget.owner.name for row in first["budgets"] + second["budgets"]] == [
        "vision",
        "ads",
    ]


@pytest.mark.heavy
@pytest.mark.usefixtures("usage_hours")
def test_each_project_has_the_same_colour_on_all_pages(cast: Cast, sign_in: SignIn) -> None:
    client, node = sign_in("alice"), make.node(cast.pool)
    make.place(make.workload(cast.ads, "here", phase="running", run=1), node, [0])
    colors = {
        line.name: line.hue for line in client.get("/usage?span=24h&by=project&sort=name").context["lines"]
    }
    assert colors == {"vision": project_hue(cast.vision.pk), "ads": project_hue(cast.ads.pk)}
    ((on_overview, name, *_),) = client.get("/").context["legend"]
    ((on_pool, *_),) = client.get(f"/node-pools/{cast.pool.name}").context["legend"]
    assert name == "ads" and on_overview == on_pool == colors["ads"] != colors["vision"]
    erin = sign_in("erin").get("/usage?span=24h").context["lines"]
    assert [(line.name, line.hue) for line in erin] == [("vision", colors["vision"])]
