"""Tests for services and their added engines in the workload list."""

import re
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from projects.models import Service, Workload
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn
from tests.web.overview.test_overview_page import figure
from tests.web.workloads.workload_list.test_workload_list import serve


def _added_engines(cast: Cast, count: int, *phases: str) -> tuple[Workload, list[Workload]]:
    """Create a running service with one initial engine and added engines in these phases."""
    row = make.workload(cast.vision, "chat", kind="service", phase="running", replicas=1)
    service = Service.objects.create(workload=row, role="worker", initial_engines=1, next_number=count + 2)
    serve(service, row, 1)
    engines = []
    for number in range(count):
        phase = phases[number % len(phases)]
        engine = make.workload(cast.vision, f"chat-e{number + 2}", kind="service", phase=phase, replicas=1)
        serve(service, engine, number + 2)
        engines.append(engine)
    return row, engines


def _listed(client: Any, query: str) -> list[str]:
    text = client.get(f"/workloads{query}").content.decode()
    return re.findall(r'<a class="plain-link" id="w-[^>]+>([^<]+)</a>', text)


def test_added_engines_are_collapsed_below_their_service(cast: Cast, sign_in: SignIn) -> None:
    service, _ = _added_engines(cast, 2, "running")
    make.workload(cast.vision, "train", phase="running")
    client = sign_in("dave")
    assert _listed(client, "?sort=name") == ["chat", "train"]
    assert "Show </span>2 added engines<" in client.get("/workloads").content.decode()
    assert _listed(client, f"?sort=name&open={service.pk}") == ["chat", "chat-e2", "chat-e3", "train"]
    opened = client.get(f"/workloads?open={service.pk}").content.decode()
    assert "Hide </span>2 added engines<" in opened and opened.count('<tr class="nested">') == 2


def test_added_engine_in_another_state_than_its_service_has_its_own_row(cast: Cast, sign_in: SignIn) -> None:
    service, _ = _added_engines(cast, 3, "running", "pending", "failed")
    client = sign_in("dave")
    assert _listed(client, "?sort=name") == ["chat", "chat-e3"]
    assert _listed(client, f"?sort=name&state=all&open={service.pk}") == [
        "chat", "chat-e2", "chat-e3", "chat-e4",
    ]  # fmt: skip
    page = client.get("/workloads").content.decode()
    assert page.count('<span class="kind">Inference engine</span>') == 1


def _tabs(client: Any, query: str = "") -> dict[str, str]:
    page = client.get(f"/workloads{query}").content.decode()
    return {
        word: " ".join(re.sub(r"<[^>]+>", "", text).split())
        for word, text in re.findall(r'<a id="state-(\w+)"[^>]*>(.*?)</a>', page, re.DOTALL)
    }


def test_tabs_count_the_rows_of_the_list_and_add_up(cast: Cast, sign_in: SignIn) -> None:
    service, _ = _added_engines(cast, 4, "running", "pending", "running", "failed")
    make.workload(cast.vision, "train", phase="running")
    client = sign_in("dave")
    tabs = {
        "live": "Live 3", "pending": "Pending 1", "running": "Running 2",
        "suspended": "Suspended 0", "ended": "Ended 1", "failed": "Failed 1", "all": "All 4",
    }  # fmt: skip
    assert _tabs(client) == tabs
    assert _tabs(client, f"?open={service.pk}") == tabs, "also when the engines of a service are shown"
    for state, text in tabs.items():
        assert text.endswith(f" {len(_listed(client, f'?state={state}'))}"), state
    for title, number in (("Running", "2"), ("Pending", "1")):
        assert figure(client, title)[1].split()[0] == number, "the overview counts the same rows"


def test_pending_service_and_its_pending_engines_count_as_one_workload(cast: Cast, sign_in: SignIn) -> None:
    service, _ = _added_engines(cast, 2, "pending")
    Workload.objects.filter(pk=service.pk).update(phase="pending")
    client = sign_in("dave")
    assert _tabs(client)["pending"] == "Pending 1"
    assert figure(client, "Pending")[1].split()[0] == "1"


def test_failed_tab_is_red_if_only_added_engines_have_failed(cast: Cast, sign_in: SignIn) -> None:
    _added_engines(cast, 1, "failed")
    page = sign_in("dave").get("/workloads").content.decode()
    assert '>Failed <span class="bad">1<' in page


def test_engine_is_listed_if_its_service_does_not_match_the_filters(cast: Cast, sign_in: SignIn) -> None:
    _added_engines(cast, 2, "running", "pending")
    client = sign_in("dave")
    assert _listed(client, "?state=pending") == ["chat-e3"]
    assert _listed(client, "?search=chat-e2") == ["chat-e2"]
    assert _listed(client, "?state=running") == ["chat"]
    assert "Show </span>1 added engine<" in client.get("/workloads?state=running").content.decode()


def test_gpus_of_a_service_include_those_of_added_engines(cast: Cast, sign_in: SignIn) -> None:
    _added_engines(cast, 3, "running", "pending", "completed")
    Workload.objects.filter(phase="running").update(gpu_milli_now=1000)
    text = sign_in("dave").get("/workloads?state=running").content.decode()
    cell = text.partition('data-label="GPUs">')[2].partition("</td>")[0]
    assert re.sub(r"<[^>]+>", "", cell).split()[:3] == ["2", "of", "3"]


def test_statement_count_does_not_depend_on_the_number_of_engines(cast: Cast, sign_in: SignIn) -> None:
    service, _ = _added_engines(cast, 1, "running")
    client, counts = sign_in("dave"), []
    engines = Service.objects.get(workload=service)
    for number in range(5):
        with CaptureQueriesContext(connection) as statements:
            assert client.get(f"/workloads?open={service.pk}").status_code == 200
        counts.append(len(statements))
        serve(
            engines, make.workload(cast.vision, f"more-{number}", kind="service", phase="running"), 9 + number
        )
    assert len(set(counts[1:])) == 1


def test_bulk_dialog_shows_services_like_the_list_but_without_lost_work(cast: Cast, sign_in: SignIn) -> None:
    service, engines = _added_engines(cast, 1, "pending")
    make.place(service, make.node(cast.pool, gpus=4), [0])
    Workload.objects.update(submitted_by=cast.dave.user, started_at=make.ago(hours=2))
    chosen = {"w": [str(row.pk) for row in (service, *engines)]}
    dialog = sign_in("dave").get("/workloads/cancel", chosen, headers={"HX-Request": "true"})
    words = " ".join(re.sub("<[^>]*>", " ", dialog.content.decode()).split())
    assert "vision/chat Partly serving" in words or "vision/chat Serving" in words
    sentence = "The service chat stops serving requests."
    assert sentence in words
    single = sign_in("dave").get(f"/workloads/{service.pk}/cancel", headers={"HX-Request": "true"})
    assert sentence in single.content.decode()
    assert "lost" not in words, "an engine serves requests and has no work that could be lost"
