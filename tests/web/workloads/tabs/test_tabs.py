"""Tests for the tabs of the workload page."""

from typing import Any

import pytest

from projects.models import Workload
from scheduler.web.workloads.timeline.entries import MAX_EVENTS
from tests import factories as make
from tests.cast import Cast
from tests.web.conftest import SignIn

TABS = ("", "/logs", "/terminal", "/metrics", "/outputs", "/resources", "/timeline", "/spec")
HTMX = {"HX-Request": "true"}


def tab_titles(response: Any) -> list[str]:
    return [title for _, title, _ in response.context["tabs"]]


@pytest.fixture
def elastic_workload(cast: Cast) -> Workload:
    """Return an elastic workload that runs three of at most seven replicas."""
    node = make.node(cast.pool, gpus=4)
    workload = make.workload(cast.vision, "grows", kind="elastic", phase="running", run=1, by=cast.dave.user)
    workload.roles.create(name="worker", position=0, min=1, max=7)
    for device in range(3):
        make.place(workload, node, [device], index=device)
    Workload.objects.filter(pk=workload.pk).update(gpu_milli_now=3000)
    return workload


def test_every_tab_shows_state_actions_and_links_to_all_tabs(
    cast: Cast, sign_in: SignIn, elastic_workload: Workload
) -> None:
    Workload.objects.filter(pk=elastic_workload.pk).update(message="2 of 3 pods running.")
    client, path = sign_in("dave"), f"/workloads/{elastic_workload.pk}"
    for tab in TABS:
        text = client.get(f"{path}{tab}").content.decode()
        assert "2 of 3 pods running." in text
        assert f'href="{path}/cancel"' in text
        assert text.count('aria-current="page"') == 1 + 1, "the tab, and the entry of the navigation"
        assert f'<a href="{path}{tab}" aria-current="page"' in text
        assert all(f'<a href="{path}{other}"' in text for other in TABS)


@pytest.mark.heavy
def test_run_tabs_appear_when_the_first_run_has_started(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "waits", by=cast.dave.user)
    client, path = sign_in("dave"), f"/workloads/{workload.pk}"
    assert tab_titles(client.get(path)) == ["Overview", "Timeline", "Spec"]
    assert tab_titles(client.get(f"{path}/logs")) == ["Overview", "Logs", "Timeline", "Spec"], (
        "a tab by its address"
    )
    Workload.objects.filter(pk=workload.pk).update(phase="running", run=1)
    refreshed = client.get(path, headers=HTMX)
    assert len(tab_titles(refreshed)) == len(TABS)
    assert '<nav id="tabs" hx-swap-oob="innerHTML">' in refreshed.content.decode()


def test_tabs_of_an_invisible_workload_return_404(
    cast: Cast, sign_in: SignIn, elastic_workload: Workload
) -> None:
    for tab in TABS:
        assert sign_in("grace").get(f"/workloads/{elastic_workload.pk}{tab}").status_code == 404


def test_editing_a_copy_is_offered_to_users_who_may_submit(
    cast: Cast, sign_in: SignIn, elastic_workload: Workload
) -> None:
    path, link = f"/workloads/{elastic_workload.pk}", f"/submit?like={elastic_workload.pk}"
    assert link in sign_in("dave").get(path).content.decode()
    assert link not in sign_in("erin").get(path).content.decode()


def test_terminal_tab_is_limited_to_operators_and_shows_why_there_is_no_terminal(
    cast: Cast, sign_in: SignIn, elastic_workload: Workload
) -> None:
    path = f"/workloads/{elastic_workload.pk}"
    viewer, operator = sign_in("erin"), sign_in("dave")
    assert f"{path}/terminal" not in viewer.get(path).content.decode()
    assert (
        viewer.get(f"{path}/terminal").status_code == viewer.get(f"{path}/terminal/pods").status_code == 403
    )
    text = operator.get(f"{path}/terminal").content.decode()
    assert "terminal-open" in text
    assert "<option>worker-2</option>" in text
    Workload.objects.filter(pk=elastic_workload.pk).update(phase="suspended")
    text = operator.get(f"{path}/terminal").content.decode()
    assert "grows is suspended. Commands can only be run while the workload is running." in text
    assert "<span>suspended since <time" in text
    assert "terminal-open" not in text


@pytest.mark.heavy
def test_elastic_workload_shows_current_minimum_and_maximum_replicas(
    cast: Cast, sign_in: SignIn, elastic_workload: Workload
) -> None:
    client = sign_in("dave")
    for path in ("/workloads", f"/workloads/{elastic_workload.pk}"):
        text = client.get(path).content.decode()
        assert "3 replicas (min 1, max 7)" in text
        assert "of 1</span>" not in text


@pytest.mark.heavy
def test_fixed_workload_shows_no_replica_range(cast: Cast, sign_in: SignIn) -> None:
    fixed = make.workload(cast.vision, "fixed", phase="running", run=1)
    fixed.roles.create(name="worker", position=0, min=2, max=2)
    assert "(min" not in sign_in("dave").get(f"/workloads/{fixed.pk}").content.decode()


def test_only_the_header_of_the_logs_and_spec_tabs_is_refreshed(
    cast: Cast, sign_in: SignIn, elastic_workload: Workload
) -> None:
    client = sign_in("dave")
    for tab, repeated in (("logs", 'id="log"'), ("spec", 'id="spec-text"'), ("resources", 'id="use"')):
        whole = client.get(f"/workloads/{elastic_workload.pk}/{tab}").content.decode()
        part = client.get(f"/workloads/{elastic_workload.pk}/{tab}", headers=HTMX).content.decode()
        assert "grows" in part
        assert tab == "resources" or repeated in whole
        assert repeated not in part


def test_spec_tab_lists_commands_variables_and_secret_names(cast: Cast, sign_in: SignIn) -> None:
    document = {
        "name": "two-roles",
        "project": "vision",
        "env": {"EPOCHS": "3"},
        "secrets": [{"name": "wandb", "env": "WANDB_API_KEY"}],
        "roles": [
            {"name": "leader", "replicas": 1, "gpu": 1, "command": ["python", "lead it.py"]},
            {"name": "worker", "replicas": 2, "gpu": 1, "command": "python work.py", "workspace": "src"},
        ],
    }
    workload = make.workload(cast.vision, "two-roles", spec=document)
    text = sign_in("dave").get(f"/workloads/{workload.pk}/spec").content.decode()
    for shown in (
        "Command of leader", "Command of worker", "python &#x27;lead it.py&#x27;", "python work.py",
        "EPOCHS=3", "wandb as", "WANDB_API_KEY", ">src<",
    ):  # fmt: skip
        assert shown in text, shown


@pytest.mark.heavy
def test_pending_workload_page_shows_its_last_eviction(cast: Cast, sign_in: SignIn) -> None:
    victim = make.workload(cast.vision, "victim", phase="pending", run=1, preemptions=1)
    preemptor = make.workload(cast.vision, "preemptor", phase="running", run=1)
    eviction = make.eviction(victim, preemptor, cast.pool, kind="preempt")
    text = sign_in("dave").get(f"/workloads/{victim.pk}").content.decode()
    assert text.index("Pending reason") < text.index('id="why"') < text.index("<dt>Evicted</dt>")
    assert text.count(f'href="/evictions/{eviction.pk}"') == 1, "told once"
    caused = sign_in("dave").get(f"/workloads/{preemptor.pk}/timeline").content.decode()
    assert caused.count(f'href="/evictions/{eviction.pk}"') == 1, "listed in the timeline alone"
    assert "Evicted another workload" in caused and "Evictions by this workload" not in caused


@pytest.mark.heavy
def test_evictions_that_the_timeline_omits_are_listed_below_it(cast: Cast, sign_in: SignIn) -> None:
    victim = make.workload(cast.vision, "victim", phase="pending", run=1, preemptions=1)
    preemptor = make.workload(cast.vision, "preemptor", phase="running", run=1)
    eviction = make.eviction(victim, preemptor, cast.pool, kind="preempt", at=make.ago(hours=2))
    for workload, title in (
        (victim, "Evictions of this workload"),
        (preemptor, "Evictions by this workload"),
    ):
        for minutes in range(MAX_EVENTS + 1):
            make.event(workload, "message", "Checkpoint saved.", at=make.ago(minutes=minutes / 10))
        text = sign_in("dave").get(f"/workloads/{workload.pk}/timeline").content.decode()
        table = text.partition(f"{title}</h2>")[2].partition("</table>")[0]
        assert f'href="/evictions/{eviction.pk}"' in table


@pytest.mark.heavy
def test_overview_lists_the_pods_of_a_gang_in_one_row_per_node_and_state(cast: Cast, sign_in: SignIn) -> None:
    gang = make.workload(cast.vision, "gang", phase="running", run=1, started_at=make.ago(minutes=9))
    nodes = [make.node(cast.pool, number, gpus=8) for number in (7, 8)]
    for index, device in enumerate((0, 1, 5)):
        make.place(gang, nodes[0], [device], index=index)
    make.place(gang, nodes[0], [6], index=3, state="starting")
    for index, peak in ((4, 200), (5, 310)):
        make.place(gang, nodes[1], [index], index=index, memory_peak_mib=peak)
    response = sign_in("dave").get(f"/workloads/{gang.pk}")
    table = response.context["pods"]
    shown = [
        (row.names, row.ranks, row.first_pod.state, row.first_pod.node.name, row.devices, row.gpus)
        for row in table.rows
    ]
    assert shown == [
        ("worker-0 to worker-2", "0 to 2", "running", nodes[0].name, ["0", "1", "5"], 3000),
        ("worker-3", "3", "starting", nodes[0].name, ["6"], 1000),
        ("worker-4, worker-5", "4, 5", "running", nodes[1].name, ["4", "5"], 2000),
    ]
    assert table.rows[2].limits == [("no memory limit", "peak 310 MiB")]
    text = response.content.decode()
    assert "3 pods, ranks 0 to 2" in text and ">rank 3<" in text


def test_pods_show_limits_only_if_there_are_any(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "train", phase="running", run=1, started_at=make.ago(minutes=9))
    pod = make.place(workload, make.node(cast.pool, gpus=8), [0], memory_peak_mib=310)
    client, column = sign_in("dave"), '<th scope="col">Limits</th>'
    assert column not in client.get(f"/workloads/{workload.pk}").content.decode()
    pod.limits = {"memory_mib": 4096, "memory_source": "document", "cpu_milli": 0, "cpu_source": ""}
    pod.save()
    text = client.get(f"/workloads/{workload.pk}").content.decode()
    assert column in text and "as declared, peak 310 MiB" in text


@pytest.mark.heavy
def test_pods_that_ended_differently_are_listed_separately(cast: Cast, sign_in: SignIn) -> None:
    gang = make.workload(cast.vision, "gang", phase="running", run=2, started_at=make.ago(minutes=9))
    node = make.node(cast.pool, gpus=8)
    for index, code in enumerate((1, 143, 143)):
        make.place(gang, node, [index], index=index, state="failed", exit_code=code, ended_at=make.ago())
    gang.pods.update(run=1)
    response = sign_in("dave").get(f"/workloads/{gang.pk}")
    earlier = response.context["earlier"].rows
    assert [(row.names, row.first_pod.exit_code) for row in earlier] == [
        ("worker-0", 1), ("worker-1, worker-2", 143),
    ]  # fmt: skip
    assert "3 pods from earlier runs" in response.content.decode()
