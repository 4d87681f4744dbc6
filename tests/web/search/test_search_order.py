"""Tests for misspelt words and for the order of search results."""

import re
from uuid import UUID

import pytest

from berth.server.web.search import nearest_words
from projects.models import InferenceEngine, Service, Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.search.test_search import HTMX, array, links, titles


@pytest.mark.heavy
def test_misspelled_words_find_the_nearest_pages_actions_and_objects(
    cast: Cast, rack7: None, sign_in: SignIn
) -> None:
    alice = sign_in("alice")
    assert "/quotas" in links(alice, "quta")
    assert "/node-pools" in links(alice, "nod pols")
    assert "rack7-train" in titles(alice, "rakc7-train")
    assert "Create schedule" in titles(alice, "craete schedul")
    text = alice.get("/search", {"q": "quta"}, headers=HTMX).content.decode()
    assert "Nothing matches “quta”. Showing results for “quota”." in text
    assert links(alice, "zzzzzz") == []
    assert "rack7-ranker" not in titles(sign_in("dave"), "rakc7-ranker"), "hidden names are not suggested"


def test_misspelled_words_find_the_latest_of_many_workloads(
    cast: Cast, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest_words, "NAMES_COMPARED", 1)
    make.workload(cast.vision, "brightness", id=UUID(int=1), submitted_at=make.ago(minutes=1))
    make.workload(cast.vision, "older", id=UUID(int=2), submitted_at=make.ago(hours=9))
    assert "brightness" in titles(sign_in("alice"), "brihgtness")


def test_name_matches_come_before_hidden_keywords(cast: Cast, sign_in: SignIn) -> None:
    boom = make.workload(cast.vision, "boom", phase="failed")
    alice = sign_in("alice")
    assert links(alice, "bo")[0] == f"/workloads/{boom.pk}"
    assert "/" not in links(alice, "bo"), "dashboard contains bo but does not start with it"
    assert links(alice, "dash")[0] == "/"


def test_name_that_begins_with_the_text_comes_before_newer_names_that_contain_it(
    cast: Cast, sign_in: SignIn
) -> None:
    first = make.workload(cast.vision, "grid-search", submitted_at=make.ago(hours=9))
    for number in range(9):
        make.workload(cast.vision, f"hypergrid-{number}")
    assert links(sign_in("alice"), "grid")[0] == f"/workloads/{first.pk}"


@pytest.mark.heavy
def test_workloads_and_arrays_are_found_by_the_start_of_their_id(cast: Cast, sign_in: SignIn) -> None:
    pk = UUID("7f31c94e-2b60-4d58-9a17-c05e8f6b3d21")  # resembles no word
    workload = make.workload(cast.vision, "probe", id=pk, phase="running", run=1, by=cast.dave.user)
    grid, client = array(cast, "grid", "pending"), sign_in("dave")
    for text in (str(workload.pk), str(workload.pk)[:6], str(workload.pk)[:11].upper(), workload.pk.hex[:20]):
        assert f"/workloads/{workload.pk}" in links(client, text), text
        rows = client.get("/workloads", {"state": "all", "search": text}).context["slice"].rows
        assert [row.name for row in rows] == ["probe"], text
    assert f"/arrays/{grid.pk}" in links(client, str(grid.pk)[:8])
    assert f"/workloads/{workload.pk}/cancel" in links(client, f"cancel {str(workload.pk)[:8]}")
    task = Workload.objects.filter(array=grid).first()
    assert task is not None and f"/workloads/{task.pk}" in links(client, str(task.pk))
    for text in (str(workload.pk)[:5], f"{str(workload.pk)[:3]}-{str(workload.pk)[3:8]}"):
        assert links(client, text) == [], text
    assert links(sign_in("grace"), str(workload.pk)) == []


def test_words_within_a_name_are_not_treated_as_abbreviated_verbs(cast: Cast, sign_in: SignIn) -> None:
    for name in ("train-e-7", "my-run-3"):
        make.workload(cast.vision, name, phase="running", run=1, by=cast.dave.user)
    dave = sign_in("dave")
    for words, name in (("train e 7", "train-e-7"), ("my run 3", "my-run-3")):
        assert titles(dave, words)[:2] == [name, f"Show log of {name}"], words


@pytest.mark.parametrize(
    "words", ["cancel live-wait", "live-wait cancel", "live-wait canc", "vision cancel live"]
)
def test_words_of_an_action_can_be_in_any_order(words: str, cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "live-wait", phase="running", run=1)
    assert links(sign_in("carol"), words)[0] == f"/workloads/{workload.pk}/cancel"


def test_last_word_belongs_to_the_name_unless_it_is_an_action(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "train-run", phase="running", run=1)
    shown = titles(sign_in("carol"), "train run")
    assert shown[0] == "train-run" and "Cancel train-run" in shown


@pytest.mark.heavy
@pytest.mark.every_case
@pytest.mark.parametrize("word", ["pool", "node pool", "pools"])
def test_kind_in_the_search_text_restricts_results_to_that_kind(
    word: str, cast: Cast, sign_in: SignIn
) -> None:
    make.workload(cast.vision, "local-run")
    client = sign_in("alice")
    assert links(client, f"{word} local")[0] == "/node-pools/local"
    assert links(client, f"local {word}")[0] == "/node-pools/local"
    assert "local-run" not in titles(client, f"{word} local")
    assert links(client, "workload local-run")[0].startswith("/workloads/")
    assert "/workloads?project=vision" in links(client, "project vision")


def test_actions_have_distinct_icons_and_destructive_actions_are_marked(cast: Cast, sign_in: SignIn) -> None:
    make.workload(cast.vision, "probe", phase="running", run=1)
    text = sign_in("carol").get("/search", {"q": "probe"}, headers=HTMX).content.decode()
    icons = {
        re.sub("<[^>]+>", "", title): (icon, "danger" in start, "data-runs" in start)
        for start, icon, title in re.findall(
            r'<a ([^>]*)><svg.*?icons\.svg#(\w+)".*?<span class="title">(.*?)</span>', text
        )
    }
    assert icons["Suspend probe"] == ("suspend", False, True)
    assert icons["Cancel probe"] == ("cancel", True, True)
    assert icons["Show log of probe"] == ("template", False, False)
    assert icons["probe"] == ("workloads", False, False)


@pytest.mark.heavy
def test_search_lists_a_service_once_with_its_state_and_omits_its_engines(
    cast: Cast, sign_in: SignIn
) -> None:
    chat, added = (
        make.workload(cast.vision, name, kind="service", phase="running", run=1, by=cast.dave.user)
        for name in ("chat", "chat-e2")
    )
    service = Service.objects.create(workload=chat, role="worker", initial_engines=1, next_number=3)
    for number, workload, state in ((1, chat, "ACTIVE"), (2, added, "CREATING")):
        InferenceEngine.objects.create(
            service=service, number=number, origin="managed", state=state, workload=workload,
            since=make.ago(), created_at=make.ago(), is_healthy=True,
        )  # fmt: skip
    dave = sign_in("dave")
    shown = titles(dave, "cha")
    assert shown.count("chat") == 1 and "chat-e2" not in shown and "Cancel chat" in shown
    assert f"/services/{chat.pk}" in links(dave, "cha") and f"/workloads/{chat.pk}" not in links(dave, "cha")
    for path in ("/search?q=cha", "/workloads"):
        page = dave.get(path, headers=HTMX).content.decode()
        assert '<span class="chip warn">Partly serving</span>' in page, path
    assert "chat-e2" in titles(dave, "chat-e2")
    for text in (str(chat.pk), str(chat.pk)[:8], "workload chat", "service chat"):
        assert f"/services/{chat.pk}" in links(dave, text), text


def test_actions_are_offered_on_the_named_workload_or_the_only_match(cast: Cast, sign_in: SignIn) -> None:
    for name in ("probe", "probe-2"):
        make.workload(cast.vision, name, phase="running", run=1, by=cast.dave.user)
    dave = sign_in("dave")
    assert not any(title.startswith("Cancel") for title in titles(dave, "prob"))
    assert [title for title in titles(dave, "probe") if title.startswith("Cancel")] == ["Cancel probe"]
    assert "Cancel probe-2" in titles(dave, "probe-")


def test_search_for_a_state_lists_the_latest_workloads_and_arrays(cast: Cast, sign_in: SignIn) -> None:
    for number in range(6):
        make.workload(cast.vision, f"broken-{number}", phase="failed", since=make.ago(minutes=number))
    array(cast, "grid", "running", "pending")
    dave = sign_in("dave")
    names = [f"broken-{number}" for number in range(5)]
    assert titles(dave, "failed") == ["Failed workloads (6)", *names]
    assert titles(dave, "running") == ["Running workloads (1)", "grid"]
