"""Tests for all pages: access, escaping, paging and query counts."""

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from berth.server.web.lists.paging import PageSlice
from pools import history
from pools.models import NodePool
from pools.models.scaling import ScalingKind
from projects.models import Project, Workload
from scheduler.models import Eviction
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn, streamed

PAGES = (
    "/", "/workloads", "/submit", "/quotas", "/node-pools", "/node-pools/local", "/decisions", "/evictions",
    "/usage", "/queue", "/notifications", "/fair-share", "/activity", "/access", "/secrets",
)  # fmt: skip
MARKUP = "<script>alert(1)</script>"
ESCAPED = "&lt;script&gt;alert(1)&lt;/script&gt;"
HTMX = {"HX-Request": "true"}
OUTSIDERS = ("frank", "grace")  # users without a role in the workload's department


@pytest.fixture
def running(cast: Cast) -> Workload:
    workload = make.workload(
        cast.vision, "train", phase="running", by=cast.dave.user, run=1, started_at=make.ago(minutes=9)
    )
    make.place(workload, make.node(cast.pool), [0])
    make.event(workload, "running", "All pods run.")
    return workload


def test_anonymous_visitor_is_redirected_to_the_login_page_and_back(cast: Cast) -> None:
    for path in PAGES:
        answer = Client().get(path)
        assert (answer.status_code, answer.headers["Location"]) == (302, f"/login?next={path}")


@pytest.mark.parametrize(
    "names",
    [("alice", "dave", "frank"), pytest.param(("bob", "carol", "erin", "grace"), marks=pytest.mark.heavy)],
    ids=" ".join,
)
def test_every_page_opens_for_every_user(sign_in: SignIn, running: Workload, names: tuple[str, ...]) -> None:
    for name in names:
        client = sign_in(name)
        for path in PAGES:
            answer = client.get(path, follow=True)
            if name == "frank" and path.startswith("/node-pools/"):  # frank has no role and sees no pools
                assert answer.status_code == 404, path
                continue
            is_rejected = name in ("erin", "frank") and path == "/submit"  # these users may not submit
            assert answer.status_code == (403 if is_rejected else 200), path
            assert answer.headers["Cache-Control"] == "no-store, private", path
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'; script-src 'self'" in policy and "'unsafe-inline'" not in policy, path
            text = answer.content.decode()
            assert (text.count("<main"), text.count("<h1")) == (1, 1), path


def test_workload_is_visible_only_to_users_of_its_project(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    pod = running.pods.get()
    for name in cast.people:
        client, status = sign_in(name), 404 if name in OUTSIDERS else 200
        assert client.get(f"/workloads/{running.pk}").status_code == status, name
        assert (str(running.pk) in client.get("/workloads").content.decode()) is (status == 200)
        log = client.get(f"/workloads/{running.pk}/log?pod={pod.pk}", headers={"Accept": "text/plain"})
        assert log.status_code == status, name


@pytest.mark.every_case
@pytest.mark.parametrize("step", ["cancel", "suspend"])
def test_only_members_and_admins_can_act_on_a_workload(
    step: str, cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    for name in cast.people:
        client, status = sign_in(name), 404 if name in OUTSIDERS else 403 if name == "erin" else 200
        assert client.get(f"/workloads/{running.pk}/{step}").status_code == status, name
        with transaction.atomic():
            answer = client.post(f"/workloads/{running.pk}/{step}", headers=HTMX)
            assert answer.status_code == (204 if status == 200 else status), name
            running.refresh_from_db()
            assert running.phase == ("stopping" if status == 200 else "running"), name
            transaction.set_rollback(True)  # undo the request for the next user


# Forms, and the users who may open them
FORMS = {
    "/quotas/projects/vision/local": {"alice", "bob"},
    "/quotas/departments/research/local": {"alice"},
    "/departments/new": {"alice"},
    "/departments/research/new-project": {"alice", "bob"},
    "/projects/vision/change": {"alice", "bob"},
    "/projects/vision/delete": {"alice", "bob"},
    "/node-pools/new": {"alice"},
    "/node-pools/local/settings": {"alice"},
    "/node-pools/local/scale": {"alice"},
    "/node-pools/local/pause": {"alice"},
    "/nodes/local-0/drain": {"alice"},
    "/access/grant": {"alice", "bob", "carol"},
    "/access/users/new": {"alice"},
    "/access/tokens/new": {"alice", "bob", "carol", "dave", "erin", "frank", "grace"},
}


def test_forms_are_accessible_only_to_permitted_roles(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    for name in cast.people:
        client = sign_in(name)
        for path, allowed in FORMS.items():
            status = client.get(path).status_code
            assert (status == 200) is (name in allowed), f"{name} {path}: {status}"
            assert status in (200, 403, 404)


def test_missing_page_keeps_the_navigation_of_a_signed_in_user(sign_in: SignIn) -> None:
    answer = sign_in("dave").get("/no-such-page")
    assert (answer.status_code, 'id="nav"' in answer.content.decode()) == (404, True)
    missing = sign_in("dave").get("/workloads/00000000-0000-4000-8000-000000000000").content.decode()
    assert 'href="/workloads">Go to workloads</a>' in missing
    assert (
        '<p class="wrap">There is no workload with the ID 00000000-0000-4000-8000-000000000000.</p>'
        in missing
    )
    assert "`" not in sign_in("dave").get("/nodes/local-9").content.decode().partition("<main")[2]
    answer = Client().get("/no-such-page")
    assert (answer.status_code, 'id="nav"' in answer.content.decode()) == (404, False)


@pytest.mark.heavy
def test_every_font_file_in_the_style_sheet_is_shipped(sign_in: SignIn) -> None:
    assert "/static/berth/css/fonts.css" in sign_in("alice").get("/").content.decode()
    sheet = Path(finders.find("berth/css/fonts.css") or "")
    files = re.findall(r'url\("([^"]+)"\)', sheet.read_text())
    assert {file.rpartition(".")[2] for file in files} == {"woff2"}
    assert [file for file in files if not (sheet.parent / file).is_file()] == []


def test_forms_of_invisible_projects_return_404(sign_in: SignIn) -> None:
    client = sign_in("grace")
    for path in (
        "/quotas/projects/vision/local",
        "/projects/vision/change",
        "/departments/research/new-project",
    ):
        assert client.get(path).status_code == 404


def test_evictions_are_visible_only_to_the_projects_of_the_victim_and_the_preemptor(
    cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    preemptor = make.workload(cast.ads, "rank")
    row = make.eviction(running, preemptor, cast.pool)
    for name, status in (("dave", 200), ("grace", 200), ("alice", 200), ("frank", 404)):
        client = sign_in(name)
        assert client.get(f"/evictions/{row.pk}").status_code == status
        assert (f"/evictions/{row.pk}" in client.get("/evictions").content.decode()) is (status == 200)
    text = sign_in("grace").get(f"/evictions/{row.pk}").content.decode()
    assert f"/workloads/{running.pk}" not in text, "no link that the user cannot open"


def test_devices_of_other_projects_are_anonymized(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    for path in ("/node-pools/local", "/"):
        assert "another project" in sign_in("grace").get(path).content.decode()
        assert not re.search(r"\bvision\b", sign_in("grace").get(path).content.decode())
        assert "vision" in sign_in("dave").get(path).content.decode()


@pytest.mark.heavy
def test_only_platform_admins_see_provider_error_details(cast: Cast, sign_in: SignIn) -> None:
    error = "ordering 1 nodes: credentials: AccessDenied: arn:aws:iam::123456789012:role/berth"
    cast.pool.last_error = error
    cast.pool.save()
    history.write(cast.pool, ScalingKind.ERROR, error, at=timezone.now(), error="credentials")
    for path in ("/", "/node-pools/local", "/api/v1/node-pools/local/history", "/api/v1/node-pools/local"):
        assert "123456789012" in sign_in("alice").get(path).content.decode(), path
        seen = sign_in("dave").get(path).content.decode()
        assert "123456789012" not in seen, path
        summary = "provider error" if path.endswith("/history") else "fail"
        assert summary in seen.lower() or path == "/api/v1/node-pools/local", path


def test_htmx_request_gets_only_the_page_body(sign_in: SignIn, running: Workload) -> None:
    client = sign_in("dave")
    for path in (*PAGES[:2], *PAGES[3:], f"/workloads/{running.pk}"):
        part = client.get(path, headers=HTMX).content.decode()
        assert "<html" not in part
        assert '<nav class="nav"' not in part


def test_expired_session_returns_401_and_preserves_the_input(cast: Cast, running: Workload) -> None:
    answer = Client().post(f"/workloads/{running.pk}/cancel", headers=HTMX)
    assert answer.status_code == 401
    assert "Your input is preserved" in answer.content.decode()


def test_markup_is_escaped_on_every_page(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    cast.research.title = cast.vision.title = MARKUP
    cast.research.save()
    cast.vision.save()
    user = cast.dave.user
    user.username = MARKUP
    user.save()
    Workload.objects.filter(pk=running.pk).update(
        message=MARKUP, labels={MARKUP: MARKUP}, spec={"name": MARKUP, MARKUP: MARKUP}
    )
    pod = running.pods.get()
    pod.message = MARKUP
    pod.save()
    make.event(running, MARKUP[:40], MARKUP, actor=MARKUP)
    waiting = make.workload(
        cast.vision, "wait", reason="Backoff", message=MARKUP,
        explanation={
            "blockers": [{"reason": MARKUP, "message": MARKUP, "numbers": {MARKUP: MARKUP}}],
            "ordering": [MARKUP],
            "pool": MARKUP, "queue_position": 1,
        },
    )  # fmt: skip
    cast.pool.last_error = MARKUP
    cast.pool.save()
    numbers = {"victim": [{"queue": MARKUP}], "rejected": [MARKUP]}
    eviction = make.eviction(running, waiting, cast.pool, rule=MARKUP, numbers=numbers)
    client = sign_in("alice")
    pages = (*PAGES, f"/workloads/{running.pk}", f"/workloads/{waiting.pk}", f"/evictions/{eviction.pk}")
    pages_with_markup = 0
    for path in (*pages, f"/workloads?search={MARKUP}", f"/activity?search={MARKUP}&actor={MARKUP}"):
        text = client.get(path).content.decode()
        assert MARKUP not in text, path
        pages_with_markup += ESCAPED in text
    assert pages_with_markup >= 8, "the markup was not shown at all"


INVALID_QUERIES = (
    "?cursor=%00", "?cursor=bm90LWpzb24", "?sort=password", "?state=nope&kind=x", "?search=%00&project=%00",
    "?cursor=WyI+IiwiLXN1Ym1pdHRlZCIsIm5vIHRpbWUiLCJ4Il0", "?since=yesterday&until=2026-99-99",
    "?pool=%27%22",
)  # fmt: skip


@pytest.mark.heavy
def test_invalid_query_parameters_are_ignored(sign_in: SignIn) -> None:
    client = sign_in("alice")
    for path in ("/workloads", "/evictions", "/activity", "/node-pools/local"):
        for query in INVALID_QUERIES:
            assert client.get(path + query).status_code == 200, path + query


@pytest.mark.heavy
def test_workload_list_can_be_paged_forward_and_back(cast: Cast, sign_in: SignIn) -> None:
    for number in range(120):
        make.workload(cast.vision, f"job-{number:03}", submitted_at=make.ago(minutes=number))
    client = sign_in("dave")

    def names(slice_: PageSlice[Workload]) -> list[str]:
        return [row.name for row in slice_.rows]

    first = client.get("/workloads").context["slice"]
    second = client.get(f"/workloads?cursor={first.next}").context["slice"]
    third = client.get(f"/workloads?cursor={second.next}").context["slice"]
    back = client.get(f"/workloads?cursor={third.previous}").context["slice"]
    assert names(first) + names(second) + names(third) == [f"job-{n:03}" for n in range(120)]
    assert third.next is None
    assert first.previous is None
    assert names(back) == names(second)
    by_name = client.get("/workloads?sort=-name").context["slice"]
    assert names(by_name)[0] == "job-119"


@pytest.mark.heavy
def test_filtered_evictions_are_exported_as_csv(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    make.eviction(running, None, cast.pool, kind="drain")
    make.eviction(running, None, cast.pool, rule="=cmd()")
    listed = sign_in("dave").get("/evictions").content.decode()
    assert listed.index("format=csv") < listed.index("<table"), "the download is above the table"
    answer = sign_in("dave").get("/evictions?format=csv&kind=reclaim")
    text = streamed(answer).decode()
    assert len(text.splitlines()) == 2
    assert "'=cmd()" in text
    assert Eviction.objects.count() == 2


@pytest.mark.parametrize(
    "name",
    ["bob", pytest.param("alice", marks=pytest.mark.heavy), pytest.param("dave", marks=pytest.mark.heavy)],
)
def test_query_count_does_not_grow_with_projects(
    name: str, cast: Cast, sign_in: SignIn, running: Workload
) -> None:
    client = sign_in(name)

    def count_queries(path: str) -> int:
        client.get(path)
        with CaptureQueriesContext(connection) as captured:
            assert client.get(path, follow=True).status_code == 200
        return len(captured)

    make.eviction(running, running, cast.pool)
    make.workload(cast.vision, "pending", reason="WouldExceedFairShare")
    few: dict[str, int] = {}
    for number in range(6):
        project = Project.objects.create(name=f"more-{number}", department=cast.research)
        make.quota(project, cast.pool, 1)
        make.workload(project, "waits", reason="WouldExceedFairShare")
        make.eviction(running, running, cast.pool)
        few = few or {path: count_queries(path) for path in PAGES}
    for path in PAGES:
        assert count_queries(path) <= few[path], path


@pytest.mark.heavy
def test_idle_projects_are_counted_on_the_overview(cast: Cast, sign_in: SignIn, running: Workload) -> None:
    Project.objects.bulk_create(Project(name=f"idle-{n}", department=cast.research) for n in range(60))
    Workload.objects.filter(pk=running.pk).update(first_started_at=make.ago(minutes=1))
    text = sign_in("alice").get("/").content.decode()
    assert "63 more projects" in text
    assert "idle-7" not in text
    assert "?project=vision" in text


@pytest.mark.heavy
@pytest.mark.parametrize(("tumbling", "period"), [(True, "restarts from zero"), (False, "covers the last")])
def test_fair_share_page_shows_the_usage_window(
    cast: Cast, sign_in: SignIn, tumbling: bool, period: str
) -> None:
    NodePool.objects.update(window=86_400, tumbling_window=tumbling)
    assert period in sign_in("alice").get("/fair-share?pool=local").content.decode()


@pytest.mark.heavy
def test_large_fair_share_page_expands_one_department_at_a_time(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.web.fair_share.MAX_EXPANDED_PROJECTS", 1)
    alice = sign_in("alice")
    folded = alice.get("/fair-share?pool=local").content.decode()
    assert "Show 2 projects in research" in folded and "?project=vision" not in folded
    opened = alice.get("/fair-share?pool=local&open=research").content.decode()
    assert "Hide 2 projects in research" in opened and "?project=vision" in opened
    assert "?project=ads" not in opened


def test_overview_shows_charts_of_the_twelve_busiest_projects(cast: Cast, sign_in: SignIn) -> None:
    rows = (Project(name=f"busy-{n}", department=cast.research) for n in range(12))
    busy = Project.objects.bulk_create(rows)
    for project in (*busy, cast.search):
        make.workload(project, "next", gpu_milli_min=1000 if project in busy[:1] else 2000)
    page = sign_in("alice").get("/")
    shown = [line.owner.name for _, lines in page.context["queues"] for line in lines]
    assert len(shown) == 12 and "busy-0" not in shown and "search" in shown
    assert page.context["more_projects"] == 4


def test_user_without_a_role_sees_no_pools(cast: Cast, sign_in: SignIn) -> None:
    NodePool.objects.filter(pk=cast.pool.pk).update(name="kraken", gpu_model="H100-kraken")
    make.node(NodePool.objects.get(pk=cast.pool.pk), gpus=7)
    assert "kraken" in sign_in("erin").get("/node-pools").content.decode()
    frank = sign_in("frank")
    for path in (path for path in PAGES if not path.startswith("/node-pools/")):
        assert "kraken" not in frank.get(path).content.decode(), path


def test_email_addresses_are_shown_only_to_admins_of_the_scope(cast: Cast, sign_in: SignIn) -> None:
    expected = dict.fromkeys(cast.people, "") | {
        "alice": "alice bob carol dave erin grace", "bob": "bob carol dave erin", "carol": "carol dave erin",
    }  # fmt: skip
    for name, seen in expected.items():
        for query in ("", "?people-format=csv", "?people-search=example.org"):
            answer = sign_in(name).get(f"/access{query}")
            body = streamed(answer) if answer.streaming else answer.content
            shown = [person for person in sorted(cast.people) if f"{person}@example.org" in body.decode()]
            listed = seen.replace("erin", "erin frank") if name == "alice" else seen  # roles are not needed
            assert " ".join(shown) == listed, f"{name} {query}"


def test_page_for_a_missing_object_names_a_platform_admin(cast: Cast, sign_in: SignIn) -> None:
    text = sign_in("dave").get("/nowhere").content.decode()
    assert "Search for the name, or ask alice for a role." in text
