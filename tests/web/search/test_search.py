"""Tests for the search dialog: results of each kind, and nothing that the user may not see."""

import html
import re
from urllib.parse import urlencode

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from projects.models import Service, Workload, WorkloadArray
from projects.services import arrays, schedules
from projects.services.quotas import groups
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn

HTMX = {"HX-Request": "true"}


def create_schedule(cast: Cast) -> None:
    text = "name: report\ncommand: ./report\nroles: [{name: worker, replicas: 1}]\n"
    values = schedules.ScheduleValues(cron="0 3 * * 1", text=text)
    schedules.set_schedule(actor=cast.dave, project=cast.vision, name="weekly", values=values)


def links(client: Client, words: str) -> list[str]:
    """Return the link targets of the search results. If there are none, the response links to the
    workload list.
    """
    text = client.get("/search", {"q": words}, headers=HTMX).content.decode()
    targets = [html.unescape(link) for link in re.findall(r'<a [^>]*?href="([^"]+)"', text)]
    if (
        "Nothing matches “" in text and "Showing results" not in text
    ) or "does not apply to any of your recent workloads" in text:
        fallback = f"/workloads?{urlencode({'state': 'all', 'search': words})}"
        return [] if targets == [fallback] else ["no link to the list of workloads"]
    return targets


def titles(client: Client, words: str, **query: list[str]) -> list[str]:
    text = client.get("/search", {"q": words, **query}, headers=HTMX).content.decode()
    titles = re.findall(r'<span class="title">(.*?)</span>', text)
    return [html.unescape(re.sub("</?mark>", "", title)) for title in titles]


def array(cast: Cast, name: str, *phases: str) -> WorkloadArray:
    """Return dave's array with tasks in these phases."""
    document = {**training(name, array={"tasks": len(phases)}), "project": "vision"}
    stored = arrays.submit(actor=cast.dave, document=document).array
    for index, phase in enumerate(phases):
        ended_at = make.ago() if phase in ("completed", "failed") else None
        Workload.objects.filter(array=stored, array_index=index).update(phase=phase, ended_at=ended_at)
    return stored


@pytest.mark.heavy
def test_search_results_include_pages_objects_and_projects(cast: Cast, rack7: None, sign_in: SignIn) -> None:
    alice = sign_in("alice")
    names = [title for title in titles(alice, "rack7") if title.startswith("rack7")]
    assert set(names) == {"rack7-node", "rack7-train", "rack7-ranker"}
    assert [title for title in titles(alice, "RACK7 vision") if " " not in title] == ["rack7-train"]
    assert "/fair-share" in links(alice, "fair")
    assert "/workloads?project=vision" in links(alice, "vision")
    assert f"/node-pools/{cast.pool.name}" in links(alice, cast.pool.name)
    assert "/" not in links(alice, "") and "rack7-train" in titles(alice, "")


def test_search_lists_the_submit_and_theme_actions(cast: Cast, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    assert "Submit workload" in titles(dave, "submit")
    assert "Submit workload" not in titles(sign_in("erin"), "submit")
    for word in ("dark", "light", "theme"):
        assert "Switch between dark and light theme" in titles(dave, word)


@pytest.mark.heavy
def test_exact_name_match_is_listed_first(cast: Cast, sign_in: SignIn) -> None:
    exact = make.workload(cast.vision, "probe", submitted_at=make.ago(hours=9))
    for number in range(9):
        make.workload(cast.vision, f"probe-{number}")
        make.workload(cast.vision, f"{cast.pool.name}-{number}")
    alice = sign_in("alice")
    assert links(alice, "probe")[0] == f"/workloads/{exact.pk}"
    assert links(alice, cast.pool.name)[0] == f"/node-pools/{cast.pool.name}"


@pytest.mark.heavy
def test_typing_a_verb_lists_the_actions_that_the_role_allows(
    cast: Cast, rack7: None, sign_in: SignIn
) -> None:
    train, ranker = (Workload.objects.get(name=f"rack7-{name}") for name in ("train", "ranker"))
    alice = links(sign_in("alice"), "canc rack7")
    assert alice[:2] == [f"/workloads/{ranker.pk}/cancel", f"/workloads/{train.pk}/cancel"]
    assert links(sign_in("carol"), "suspend train")[0] == f"/workloads/{train.pk}/suspend"
    assert links(sign_in("carol"), "resume train") == []
    assert not any("/cancel" in link for link in links(sign_in("erin"), "cancel rack7"))
    here = {"HX-Current-URL": f"http://testserver/workloads/{train.pk}/logs"}
    text = sign_in("carol").get("/search", {"q": ""}, headers=HTMX | here).content.decode()
    assert "Actions on this page" in text and f'hx-get="/workloads/{train.pk}/cancel"' in text
    outside = sign_in("grace").get("/search", {"q": "suspend"}, headers=HTMX | here).content.decode()
    assert str(train.pk) not in outside


def test_actions_on_the_best_match_are_listed_after_the_matching_workloads(
    cast: Cast, sign_in: SignIn
) -> None:
    make.workload(cast.vision, "resnet-old", phase="running", run=1)
    best = make.workload(
        cast.vision, "resnet", phase="running", run=1, by=cast.dave.user, submitted_at=make.ago(hours=9)
    )
    dave = sign_in("dave")
    assert titles(dave, "resnet")[:6] == [
        "resnet", "resnet-old",
        "Show log of resnet", "Suspend resnet", "Edit a copy of resnet", "Cancel resnet",
    ]  # fmt: skip
    Workload.objects.filter(pk=best.pk).update(phase="failed", ended_at=make.ago())
    assert titles(dave, "resnet")[2:6] == [
        "Show log of resnet", "Resubmit resnet", "Edit a copy of resnet", "Delete resnet",
    ]  # fmt: skip
    text = dave.get("/search", {"q": "resnet"}, headers=HTMX).content.decode()
    assert "Actions on resnet<" in text and f'hx-get="/workloads/{best.pk}/resubmit"' in text
    assert titles(sign_in("erin"), "resnet")[:3] == ["resnet", "resnet-old", "Show log of resnet"]
    assert not any("Cancel" in title for title in titles(sign_in("erin"), "resnet"))


def test_actions_on_an_array_are_listed_after_the_matching_arrays(cast: Cast, sign_in: SignIn) -> None:
    array(cast, "grid", "running", "failed")
    shown = titles(sign_in("dave"), "grid")
    assert shown[:4] == [
        "grid", "Retry failed tasks of grid", "Suspend tasks of grid", "Edit a copy of grid",
    ]  # fmt: skip


def test_workloads_of_services_cannot_be_edited_or_resubmitted_from_the_search(
    cast: Cast, sign_in: SignIn
) -> None:
    row = make.workload(cast.vision, "chat", kind="service", phase="pending", by=cast.dave.user)
    Service.objects.create(workload=row, role="worker", initial_engines=1, next_number=2)
    dave = sign_in("dave")
    assert "Cancel chat" in titles(dave, "chat") and "Edit chat" not in titles(dave, "chat")
    Workload.objects.filter(pk=row.pk).update(phase="failed", ended_at=make.ago())
    assert "Delete chat" in titles(dave, "chat") and "Resubmit chat" not in titles(dave, "chat")


def test_search_lists_forms_only_for_users_who_may_submit_them(cast: Cast, sign_in: SignIn) -> None:
    assert {"/node-pools/new", "/schedules/new"} <= set(links(sign_in("alice"), "create"))
    assert "/schedules/new" in links(sign_in("dave"), "")
    assert not {"/node-pools/new", "/schedules/new", "/access/grant"} & set(links(sign_in("erin"), ""))


@pytest.mark.heavy
def test_search_finds_schedules_and_quota_groups(cast: Cast, sign_in: SignIn) -> None:
    other = make.pool("spare")
    groups.create_group(actor=cast.alice, name="pair", pools=[cast.pool, other])
    assert links(sign_in("alice"), "pair") == ["/quotas?pool=pair"]
    create_schedule(cast)
    assert "/schedules/vision/weekly" in links(sign_in("dave"), "weekly")
    assert "/schedules/vision/weekly/run" in links(sign_in("dave"), "run weekly")
    assert links(sign_in("grace"), "weekly") == []


@pytest.mark.heavy
def test_page_and_action_keywords_can_be_combined_with_names(cast: Cast, sign_in: SignIn) -> None:
    make.pool("spare")
    alice, dave = sign_in("alice"), sign_in("dave")
    assert "Edit the quota of vision in local" in titles(alice, "quota vision")
    assert links(alice, "edit quota vision spare")[0] == "/quotas/projects/vision/spare"
    assert "/quotas/projects/ads/local" in links(alice, "edit quota")
    assert alice.get("/quotas/projects/vision/spare").status_code == 200
    assert not any(link.startswith("/quotas/projects") for link in links(dave, "edit quota vision"))
    assert "/queue?project=vision" in links(dave, "queue vision")
    assert "/queue?project=ads" not in links(dave, "queue ads")
    assert {"/fair-share?pool=spare", "/queue?pool=spare"} <= set(links(alice, "fair spare")) | set(
        links(alice, "spare queue")
    )
    assert links(alice, "queue nowhere") == []


def test_empty_search_lists_recent_pages_then_own_workloads_and_three_actions(
    cast: Cast, sign_in: SignIn
) -> None:
    train = make.workload(cast.vision, "train", phase="failed")
    hidden = make.workload(cast.ads, "ranker")
    sweep = array(cast, "sweep", "running", "failed")
    node = make.node(cast.pool, name="rack7-node")
    paths = [
        f"/workloads/{hidden.pk}", f"/arrays/{sweep.pk}", f"/workloads/{train.pk}", f"/nodes/{node.name}",
        f"/node-pools/{cast.pool.name}", "/nowhere", "/evictions/1", "/services/nonsense",
    ]  # fmt: skip
    own = make.workload(cast.vision, "own", by=cast.dave.user)
    text = sign_in("dave").get("/search", {"q": "", "recent": paths}, headers=HTMX).content.decode()
    sections = re.findall(r'<section aria-label="([^"]+)"', text)
    assert sections == ["Recently visited", "My workloads", "Actions"]
    recent = text.partition("</section>")[0]
    assert re.findall(r'<a [^>]*?href="([^"]+)"', recent) == paths[1:5]
    assert re.findall(r'class="chip[^>]*>([^<]+)<', recent) == ["Running", "Failed", "Ready"]
    assert text.count(f"/arrays/{sweep.pk}") == 1 and f"/workloads/{own.pk}" in text
    admin = titles(sign_in("alice"), "")
    assert admin[-3:] == ["Submit workload", "Create schedule", "Create node pool"]


def test_empty_search_lists_the_pages_if_there_are_no_workloads(cast: Cast, sign_in: SignIn) -> None:
    assert {"/", "/fair-share"} <= set(links(sign_in("alice"), ""))


def test_empty_search_lists_the_workloads_that_need_attention_first(cast: Cast, sign_in: SignIn) -> None:
    for name, phase, hours in (
        ("running", "running", None),
        ("pending", "pending", None),
        ("failed", "failed", 2),
        ("failed-before", "failed", 30),
        ("impossible", "pending", None),
        ("completed", "completed", 1),
    ):
        ended = make.ago(hours=hours) if hours else None
        make.workload(cast.vision, name, by=cast.carol.user, phase=phase, ended_at=ended)
    Workload.objects.filter(name="impossible").update(reason="Unschedulable")
    array(cast, "sweep", "pending")
    expected = ["impossible", "failed", "pending", "running", "sweep"]
    assert titles(sign_in("erin"), "")[:5] == expected, "a user without workloads sees those of the project"
    assert titles(sign_in("carol"), "")[:4] == expected[:4]
    assert not set(expected) & set(titles(sign_in("grace"), ""))


def test_matches_in_project_names_are_marked_and_running_workloads_come_first(
    cast: Cast, sign_in: SignIn
) -> None:
    make.workload(cast.vision, "ended", phase="completed", ended_at=make.ago(hours=1))
    make.workload(cast.vision, "running", phase="running", run=1, submitted_at=make.ago(hours=5))
    make.workload(cast.vision, "vis-train", phase="failed", ended_at=make.ago(hours=1))
    assert titles(sign_in("dave"), "vis")[:3] == ["vis-train", "running", "ended"]
    text = sign_in("dave").get("/search", {"q": "vis"}, headers=HTMX).content.decode()
    assert '<span class="hint"><mark>vis</mark>ion</span>' in text


def test_recent_pages_of_one_kind_require_a_bounded_number_of_queries(
    cast: Cast, sign_in: SignIn, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    alice = sign_in("alice")
    rows = [make.workload(cast.vision, f"w{number}") for number in range(6)]
    with django_assert_max_num_queries(10):
        listed = titles(alice, "", recent=[f"/workloads/{row.pk}" for row in rows])
    assert listed[:6] == [row.name for row in rows]


@pytest.mark.heavy
def test_search_finds_an_array_task(cast: Cast, sign_in: SignIn) -> None:
    sweep = array(cast, "sweep2", "completed", "running", "pending", "failed")
    task = Workload.objects.get(array=sweep, array_index=3)
    alice = sign_in("alice")
    for words in ("sweep2-3", "SWEEP2[3]", "sweep2-3 vision", "swep2-3"):
        assert links(alice, words) == [f"/workloads/{task.pk}"], words
    assert links(alice, "sweep2-9") == [] and links(alice, "sweep2-3 ads") == []
    assert links(sign_in("grace"), "sweep2-3") == []
    text = alice.get("/search", {"q": "sweep2"}, headers=HTMX).content.decode()
    assert f'href="/arrays/{sweep.pk}"' in text and '<span class="chip good">Running</span>' in text


@pytest.mark.heavy
def test_search_for_a_state_links_to_the_workloads_in_that_state(cast: Cast, sign_in: SignIn) -> None:
    for number in range(2):
        make.workload(cast.vision, f"broken-{number}", phase="failed", by=cast.dave.user)
    make.workload(cast.ads, "ranker", phase="failed")
    make.workload(cast.vision, "again", preemptions=1)
    dave, alice = sign_in("dave"), sign_in("alice")
    assert titles(dave, "failed")[0] == "Failed workloads (2)"
    assert titles(alice, "fail")[0] == "Failed workloads (3)"
    assert titles(dave, "faild")[0] == "Failed workloads (2)"
    assert links(dave, "failed")[0] == "/workloads?state=failed"
    assert links(alice, "failed ads")[0] == "/workloads?state=failed&search=ads"
    assert titles(alice, "my failed jobs")[0] == "My failed workloads (0)"
    assert titles(dave, "my failed")[0] == "My failed workloads (2)"
    assert links(alice, "failed nothing") == []
    for words, expected in (
        ("running", "Running workloads (0)"), ("queued", "Pending workloads (1)"),
        ("evicted", "Evicted workloads (1)"), ("unschedulable", "Unschedulable workloads (0)"),
        ("preempted", "Evicted workloads (1)"), ("completed", "Completed workloads (0)"),
    ):  # fmt: skip
        assert expected in titles(dave, words), words


@pytest.mark.heavy
def test_search_for_a_user_links_to_their_visible_workloads(cast: Cast, sign_in: SignIn) -> None:
    for number in range(2):
        make.workload(cast.vision, f"w{number}", by=cast.dave.user)
    make.workload(cast.ads, "ranker", by=cast.grace.user)
    array(cast, "sweep", "pending", "pending")
    alice = sign_in("alice")
    assert titles(alice, "dave") == ["Workloads of dave"]
    assert titles(alice, "workloads of grace") == ["Workloads of grace"]
    assert "Workloads of dave" in titles(alice, "dvae")
    (link,) = links(alice, "dave")
    assert link == "/workloads?state=all&user=dave"
    page = alice.get(link).content.decode()
    assert ">w0</a>" in page and ">ranker</a>" not in page and 'name="user" value="dave"' in page
    assert links(sign_in("dave"), "grace") == []


def test_verb_without_a_name_offers_the_users_own_workloads(cast: Cast, sign_in: SignIn) -> None:
    mine = make.workload(cast.vision, "mine", phase="running", run=1, by=cast.dave.user)
    paused = make.workload(cast.vision, "paused", phase="suspended", by=cast.dave.user)
    old = make.workload(cast.vision, "old", phase="failed", run=1, by=cast.dave.user)
    make.workload(cast.vision, "carols", phase="running", run=1, by=cast.carol.user)
    sweep = array(cast, "sweep", "running", "failed")
    dave = sign_in("dave")
    assert set(links(dave, "cancel")) == {
        f"/workloads/{mine.pk}/cancel", f"/workloads/{paused.pk}/cancel", f"/arrays/{sweep.pk}/cancel",
    }  # fmt: skip
    assert links(dave, "retry") == [f"/arrays/{sweep.pk}/retry"]
    assert titles(dave, "retry") == ["Retry failed tasks of sweep"]
    assert set(links(dave, "suspend")[:2]) == {f"/workloads/{mine.pk}/suspend", f"/arrays/{sweep.pk}/suspend"}
    assert links(dave, "resume") == [f"/workloads/{paused.pk}/resume"]
    assert set(links(dave, "logs")) == {f"/workloads/{row.pk}/logs" for row in (mine, old)}
    assert links(dave, "delete") == [f"/workloads/{old.pk}/delete"]
    for verb in ("copy", "clone"):
        assert titles(dave, verb)[0].startswith("Edit a copy of "), verb
    assert links(dave, "retry swe") == [f"/arrays/{sweep.pk}/retry"]
    assert links(sign_in("erin"), "cancel") == []
    answer = sign_in("erin").get("/search", {"q": "cancel"}, headers=HTMX).content.decode()
    assert "This action does not apply to any of your recent workloads." in answer
    here = {"HX-Current-URL": f"http://testserver/arrays/{sweep.pk}"}
    text = dave.get("/search", {"q": ""}, headers=HTMX | here).content.decode()
    assert "Actions on this page" in text and f'hx-get="/arrays/{sweep.pk}/retry"' in text


def test_verb_without_a_name_requires_a_constant_number_of_queries(
    cast: Cast, sign_in: SignIn, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    dave = sign_in("dave")
    for number in range(25):
        make.workload(cast.vision, f"mine-{number}", by=cast.dave.user)
    for number in range(3):
        array(cast, f"sweep-{number}", "running", "failed")
    with django_assert_max_num_queries(24):
        assert len(links(dave, "cancel")) == 6


def test_search_finds_only_objects_visible_to_the_user(cast: Cast, rack7: None, sign_in: SignIn) -> None:
    actions = {f"{verb} rack7-train" for verb in ("Suspend", "Cancel", "Edit", "Edit a copy of")}
    assert set(titles(sign_in("dave"), "rack7")) - actions == {"rack7-node", "rack7-train"}
    assert Client().get("/search", {"q": "rack7"}, headers=HTMX).status_code == 401


@pytest.mark.heavy
@pytest.mark.parametrize("words", ["%", "_", "'\"><script>", "\0", "x " * 500, "\\", "☃"])
def test_unusual_search_text_causes_no_error(cast: Cast, sign_in: SignIn, words: str) -> None:
    answer = sign_in("alice").get("/search", {"q": words}, headers=HTMX)
    assert answer.status_code == 200
    assert "<script>" not in answer.content.decode()
    if words in ("%", "☃"):
        assert f"Nothing matches “{words}”." in answer.content.decode()


def test_search_query_count_is_independent_of_the_number_of_workloads(
    cast: Cast, sign_in: SignIn, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    alice = sign_in("alice")
    for number in range(20):
        make.workload(cast.vision, f"many-{number}")
    with django_assert_max_num_queries(18):
        assert len([title for title in titles(alice, "many") if title.startswith("many")]) == 6
    with django_assert_max_num_queries(24):
        links(alice, "failed many-3")
    with django_assert_max_num_queries(28):
        links(alice, "edit quota many local")


@pytest.mark.heavy
def test_search_links_to_all_matching_workloads_if_there_are_more(cast: Cast, sign_in: SignIn) -> None:
    for number in range(6):
        make.workload(cast.vision, f"many-{number}")
    dave = sign_in("dave")
    assert not any(title.startswith("Show all") for title in titles(dave, "many"))
    make.workload(cast.vision, "many-6", phase="completed", ended_at=make.ago())
    make.workload(cast.ads, "many-7")
    shown = titles(dave, "workload many")
    assert shown.index("Show all 7 workloads") == 6
    path = links(dave, "many")[6]
    assert path == "/workloads?state=all&search=many"
    assert set(re.findall(r">(many-\d)<", dave.get(path).content.decode())) == {f"many-{n}" for n in range(7)}
    assert not any(title.startswith("Show all") for title in titles(dave, "many vision"))


def test_search_results_show_the_state_and_highlight_the_match(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "boom", phase="failed")
    text = sign_in("alice").get("/search", {"q": "OO"}, headers=HTMX).content.decode()
    assert '<span class="title">b<mark>oo</mark>m</span>' in text
    assert '<span class="chip bad">Failed</span>' in text
