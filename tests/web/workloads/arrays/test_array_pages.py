"""Tests for arrays in the workload list, on their page, and in the submission form."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from projects.models import Workload, WorkloadArray
from projects.services import arrays
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn, streamed

HTMX = {"HX-Request": "true"}
DOCUMENT = """
name: sweep
project: vision
command: "true"
array: {matrix: {LR: [0.1, 0.01], SEED: [1, 2]}, max_running: 2}
roles: [{name: worker, gpu: 1}]
"""


def text(client: Client, path: str, **query: str) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_copying_an_array_opens_the_form_with_its_document(
    sweep: WorkloadArray, cast: Cast, sign_in: SignIn
) -> None:
    assert f'href="/submit?like={sweep.pk}"' in text(sign_in("dave"), f"/arrays/{sweep.pk}")
    form = text(sign_in("dave"), "/submit", like=str(sweep.pk))
    assert "name: sweep-copy" in form and "tasks: 120" in form
    assert "/submit?like=" not in text(sign_in("erin"), f"/arrays/{sweep.pk}")


def test_list_shows_an_array_as_one_row_with_its_progress(
    sweep: WorkloadArray, cast: Cast, sign_in: SignIn
) -> None:
    make.workload(cast.vision, "alone")
    page = text(sign_in("erin"), "/workloads")
    assert page.count('<th scope="row">') == 2 and "alone" in page and "sweep-5" not in page
    assert f"/arrays/{sweep.pk}" in page
    assert "1 of 120 tasks completed" in page
    assert ">1 running</span>" in page and re.search(r'class="nowrap bad"[^>]*>2 failed', page)


@pytest.mark.heavy
def test_each_array_is_counted_and_listed_in_one_state(
    sweep: WorkloadArray, cast: Cast, sign_in: SignIn
) -> None:
    make.workload(cast.vision, "alone")
    states = ("running", "pending", "suspended", "completed")
    for state in states[1:]:
        document = {**training(state, array={"tasks": 2}), "project": "vision"}
        array = arrays.submit(actor=cast.dave, document=document).array
        ended = make.ago() if state == "completed" else None
        Workload.objects.filter(array=array).update(phase=state, ended_at=ended)
    WorkloadArray.objects.filter(name="completed").update(state="completed", ended_at=make.ago())
    expected = {
        "live": ["alone", "pending", "suspended", "sweep"], "pending": ["alone", "pending"],
        "running": ["sweep"], "suspended": ["suspended"], "ended": ["completed"], "failed": [],
        "all": ["alone", "completed", "pending", "suspended", "sweep"],
    }  # fmt: skip
    client = sign_in("erin")
    for state, names in expected.items():
        page = client.get("/workloads", {"state": state})
        rows = page.context["slice"].rows
        assert sorted(row.array.name if row.array else row.name for row in rows) == names, state
        counts = {each.state: each.count for each in page.context["states"]}
        assert counts == {word: len(each) for word, each in expected.items()}
        if state in states:
            assert {row.progress.state for row in rows if row.array} == {state}


def test_running_workload_export_contains_only_running_array_tasks(
    sweep: WorkloadArray, sign_in: SignIn
) -> None:
    answer = sign_in("erin").get("/workloads?format=csv&state=running")
    assert [line.split(b",")[0] for line in streamed(answer).splitlines()[1:]] == [b"sweep-3"]


@pytest.mark.heavy
def test_exported_list_has_one_row_per_task(sweep: WorkloadArray, sign_in: SignIn) -> None:
    answer = sign_in("erin").get("/workloads?format=csv&state=all")
    assert streamed(answer).count(b"sweep-") == 120


def test_query_count_does_not_grow_with_arrays(cast: Cast, sign_in: SignIn) -> None:
    client, counts = sign_in("erin"), []
    for names in (("a",), ("b", "c", "d")):
        for name in names:
            document = {**training(name, array={"tasks": 3}), "project": "vision"}
            arrays.submit(actor=cast.dave, document=document)
        with CaptureQueriesContext(connection) as statements:
            text(client, "/workloads")
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_array_page_shows_task_counts_and_a_paginated_task_list(
    sweep: WorkloadArray, sign_in: SignIn
) -> None:
    page = text(sign_in("erin"), f"/arrays/{sweep.pk}", state="all", rows="all")
    for words in (
        "Array of 120 tasks",
        "at most 50 running at a time",
        "sweep-0",
        "sweep-49",
        "waiting for earlier",
    ):
        assert words in page
    assert "sweep-50<" not in page and "Next" in page
    assert "<span>Tasks 0 to 49, 50 of 120</span>" in page
    assert page.count('aria-label="sweep-') == 120 and 'aria-label="sweep-2: failed"' in page
    failed = text(sign_in("erin"), f"/arrays/{sweep.pk}", state="ended")
    assert "sweep-2<" in failed and "sweep-3<" not in failed


def test_array_page_lists_live_tasks_first_and_counts_each_task_only_once(
    sweep: WorkloadArray, sign_in: SignIn
) -> None:
    Workload.objects.filter(array=sweep, array_index__gt=5).update(held=True)
    page = text(sign_in("erin"), f"/arrays/{sweep.pk}")
    tabs = {
        "Live": "117", "Pending": "2 + 114 waiting", "Running": "1", "Completed": "1",
        "Failed": "2", "All": "120",
    }  # fmt: skip
    assert dict(re.findall(r'id="state-[^>]*>(\w+) <span class="[\w -]+">([^<]+)<', page)) == tabs
    assert page.count(f'href="/arrays/{sweep.pk}?state=failed#tasks"') == 1, "the figure"
    assert [n for n in range(9) if f">sweep-{n}</a>" in page] == [3, 4, 5]
    assert "earlier tasks: sweep-6 to sweep-119 Show 114 waiting tasks" in re.sub("<[^>]+>", "", page)
    assert 'aria-label="Pages"' not in page, "the tasks that wait need no second page"
    unfolded = text(sign_in("erin"), f"/arrays/{sweep.pk}", rows="all")
    assert "sweep-6<" in unfolded and "more tasks" not in unfolded and 'aria-label="Pages"' in unfolded
    assert '<span class="chip ">Waiting</span>' in unfolded.partition("sweep-6<")[2].partition("</tr>")[0]
    failed = text(sign_in("erin"), f"/arrays/{sweep.pk}", state="failed")
    assert [n for n in range(9) if f"sweep-{n}<" in failed] == [1, 2]
    Workload.objects.filter(array=sweep).update(held=False, phase="completed", ended_at=make.ago(minutes=1))
    assert "sweep-0<" in text(sign_in("erin"), f"/arrays/{sweep.pk}"), "all tasks if none is live"


def test_tasks_are_filtered_by_matrix_parameters(cast: Cast, sign_in: SignIn) -> None:
    matrix = {"LR": ["0.1", "0.01"], "SEED": ["1", "2", "3"], "MODEL": ["vit"]}
    document = {**training("grid", array={"matrix": matrix}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    client = sign_in("dave")
    page = text(client, f"/arrays/{array.pk}")
    assert ">Any LR<" in page and ">Any SEED<" in page and "Any MODEL" not in page, "one value is no choice"
    query = {"state": "live", "parameter-LR": "0.01", "parameter-SEED": "2"}
    page = text(client, f"/arrays/{array.pk}", **query)
    assert [n for n in range(6) if f">grid-{n}</a>" in page.partition('id="tasks"')[2]] == [4]
    assert re.findall(r'id="state-[^>]*>(\w+) <span class="faint">(\d+)<', page) == [
        ("Pending", "1"),
        ("All", "1"),
    ], "the live tasks are the pending ones"
    assert re.search(r'<th scope="col" class="secondary"><a [^>]*>SEED<', page)
    assert '<td class="nowrap secondary" data-label="LR">0.01</td>' in page
    assert "parameter-LR=0.01" in page, "the tabs keep the filter"
    Workload.objects.filter(array=array, array_index__gt=0).update(held=True, reason="WaitingForEarlierTasks")
    page = text(client, f"/arrays/{array.pk}")
    assert ">grid-0</a>" in page and ">grid-1</a>" not in page
    assert "5 tasks waiting for earlier tasks: grid-1 to grid-5" in re.sub("<[^>]+>", "", page)
    answer = client.get(f"/arrays/{array.pk}", {**query, "format": "csv"})
    assert streamed(answer).count(b"grid-") == 1


def test_tasks_are_sorted_by_parameters_as_numbers_or_as_text(cast: Cast, sign_in: SignIn) -> None:
    matrix = {"LR": ["1e-2", "3e-3", "10"], "MODEL": ["vit", "dino"]}
    document = {**training("grid", array={"matrix": matrix}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    client = sign_in("dave")

    def order(sort: str) -> list[int]:
        page = text(client, f"/arrays/{array.pk}", sort=sort)
        return [int(index) for index in re.findall(r">grid-(\d+)</a>", page.partition("<tbody>")[2])]

    assert order("parameter-LR") == [2, 3, 0, 1, 4, 5]
    assert order("-parameter-LR") == [4, 5, 0, 1, 2, 3]
    assert order("parameter-MODEL") == [1, 3, 5, 0, 2, 4]
    assert order("parameter-OTHER") == [0, 1, 2, 3, 4, 5], "an unknown column"
    assert 'aria-sort="ascending"' in text(client, f"/arrays/{array.pk}", sort="parameter-LR")


def test_tasks_sorted_by_a_parameter_are_paginated(cast: Cast, sign_in: SignIn) -> None:
    document = {**training("grid", array={"matrix": {"SEED": list(range(60))}}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    page = text(sign_in("dave"), f"/arrays/{array.pk}", sort="-parameter-SEED")
    rows = re.findall(r">grid-(\d+)</a>", page.partition("<tbody>")[2])
    assert rows == [str(59 - number) for number in range(50)]
    second = text(sign_in("dave"), f"/arrays/{array.pk}", sort="-parameter-SEED", cursor="50")
    rows = re.findall(r">grid-(\d+)</a>", second.partition("<tbody>")[2])
    assert rows == [str(9 - number) for number in range(10)]
    assert "cursor=50" in page and "cursor=0" in second


def test_array_spec_has_its_own_tab(sweep: WorkloadArray, sign_in: SignIn) -> None:
    client = sign_in("erin")
    overview, spec = text(client, f"/arrays/{sweep.pk}"), text(client, f"/arrays/{sweep.pk}/spec")
    assert f'href="/arrays/{sweep.pk}/spec"' in overview and "max_running: 50" not in overview
    assert "max_running: 50" in spec and "Array of 120 tasks" in spec and 'id="tasks"' not in spec
    assert sign_in("grace").get(f"/arrays/{sweep.pk}/spec").status_code == 404
    saved = text(sign_in("dave"), "/templates/save", like=str(sweep.pk), project="vision")
    assert "tasks: 120" in saved, "an array can be saved as a template"


def test_array_page_offers_actions_only_to_permitted_users(sweep: WorkloadArray, sign_in: SignIn) -> None:
    assert 'id="action-cancel"' in text(sign_in("dave"), f"/arrays/{sweep.pk}")
    assert 'id="action-cancel"' not in text(sign_in("erin"), f"/arrays/{sweep.pk}")
    assert sign_in("erin").post(f"/arrays/{sweep.pk}/cancel").status_code == 403
    for path in ("", "/cancel", "/retry", "/suspend", "/resume", "/delete"):
        assert sign_in("grace").get(f"/arrays/{sweep.pk}{path}").status_code == 404


def test_selected_array_tasks_can_be_cancelled_and_retried(sweep: WorkloadArray, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    answer = dave.post(f"/arrays/{sweep.pk}/cancel", {"indexes": "100-109, 119"}, headers=HTMX)
    assert "11 tasks of sweep cancelled." in answer.headers["HX-Trigger"]
    assert Workload.objects.filter(array=sweep, phase="cancelled").count() == 11
    answer = dave.post(f"/arrays/{sweep.pk}/retry", {"indexes": ""}, headers=HTMX)
    assert "2 tasks of sweep queued again." in answer.headers["HX-Trigger"]
    assert Workload.objects.filter(array=sweep, attempt=2, phase="pending").count() == 2


@pytest.mark.parametrize(
    ("indexes", "message"),
    [
        ("1,x", "&quot;x&quot; is not a valid index or range. Enter an index such as 7"),
        ("500", "500"),
        ("9-5", "9-5"),
    ],
)
def test_invalid_task_indexes_show_an_error_on_their_field(
    sweep: WorkloadArray, sign_in: SignIn, indexes: str, message: str
) -> None:
    answer = sign_in("dave").post(f"/arrays/{sweep.pk}/cancel", {"indexes": indexes}, headers=HTMX)
    assert answer.status_code == 422 and message in answer.content.decode()
    assert answer.context["form"].errors["indexes"]
    assert not Workload.objects.filter(array=sweep, phase="cancelled").exists()


def test_ended_array_is_deleted_after_confirmation(sweep: WorkloadArray, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    Workload.objects.filter(array=sweep, phase="running").update(
        phase="completed", ended_at=make.ago(minutes=1)
    )
    dave.post(f"/arrays/{sweep.pk}/cancel", {"indexes": ""})
    page = text(dave, f"/arrays/{sweep.pk}")
    assert "Delete array" in page and "Cancel tasks" not in page
    assert "120 tasks and their logs will be deleted" in text(dave, f"/arrays/{sweep.pk}/delete")
    assert dave.post(f"/arrays/{sweep.pk}/delete").headers["Location"] == "/workloads"
    assert not WorkloadArray.objects.exists() and not Workload.objects.exists()


def test_array_header_states_pool_priority_and_max_runtime(sweep: WorkloadArray, sign_in: SignIn) -> None:
    Workload.objects.filter(array=sweep).update(pools=["local", "spare"], max_runtime=3600)
    WorkloadArray.objects.filter(pk=sweep.pk).update(priority=40)
    page = text(sign_in("erin"), f"/arrays/{sweep.pk}")
    facts = page.partition('class="head-facts"')[2].partition("</p>")[0]
    words = re.sub(r"<[^>]+>", " ", facts)
    assert re.search(
        r"pools\s+local\s+or\s+spare\s+priority 40, preemptible\s+max runtime 1 h per task", words
    )
    assert 'href="/node-pools/spare"' in facts


def test_cancelled_tasks_are_counted_and_listed_separately(sweep: WorkloadArray, sign_in: SignIn) -> None:
    Workload.objects.filter(array=sweep, array_index=7).update(phase="cancelled", ended_at=make.ago())
    client = sign_in("erin")
    page = text(client, f"/arrays/{sweep.pk}")
    assert '?state=cancelled#tasks"><i class="cancelled"></i>1 cancelled</a>' in page
    legend = page.partition('class="legend tasks-legend">')[2].partition("</div>")[0]
    kinds = re.findall(r'<i class="(\w+)">', legend)
    order = ("completed", "failed", "cancelled", "running", "pending", "held")
    assert kinds == [kind for kind in order if kind in kinds] and {"failed", "cancelled"} < set(kinds)
    assert 'Failed <span class="bad">2</span></a>' in page
    assert 'Cancelled <span class="faint">1</span></a>' in page
    listed = text(client, f"/arrays/{sweep.pk}", state="cancelled")
    assert "sweep-7<" in listed and "sweep-2<" not in listed


@pytest.mark.heavy
def test_task_links_to_its_array(sweep: WorkloadArray, sign_in: SignIn) -> None:
    task = Workload.objects.get(array=sweep, array_index=7)
    assert f'href="/arrays/{sweep.pk}"' in text(sign_in("erin"), f"/workloads/{task.pk}")


def test_array_can_be_submitted_in_the_web_form(cast: Cast, sign_in: SignIn) -> None:
    dave = sign_in("dave")
    answer = dave.post("/submit", {"step": "submit", "document": DOCUMENT, "agreed": DOCUMENT})
    array = WorkloadArray.objects.get()
    assert answer.headers["Location"] == f"/arrays/{array.pk}"
    assert (array.task_count, array.max_running) == (4, 2)
    page = text(dave, f"/arrays/{array.pk}")
    assert "LR=0.1, SEED=2" in page and "LR=0.01, SEED=1" in page
    file = streamed(dave.get(f"/arrays/{array.pk}?format=csv")).decode()
    header, *lines = file.splitlines()
    assert header.endswith("ID,LR,SEED") and [line.split(",")[-2:] for line in lines][2] == ["0.01", "1"]
    prediction = dave.post("/submit/prediction", {"document": DOCUMENT.replace("sweep", "other")})
    assert prediction.status_code == 200 and WorkloadArray.objects.count() == 1


@pytest.mark.heavy
def test_array_errors_appear_on_the_submission_page(cast: Cast, sign_in: SignIn) -> None:
    wrong = DOCUMENT.replace("max_running: 2", "max_running: 0")
    answer = sign_in("dave").post("/submit", {"step": "submit", "document": wrong, "agreed": wrong})
    assert answer.status_code == 422 and "array.max_running" in answer.content.decode()
    assert not WorkloadArray.objects.exists()


@pytest.mark.heavy
def test_arrays_are_cancelled_together_with_selected_workloads(
    sweep: WorkloadArray, cast: Cast, sign_in: SignIn
) -> None:
    alone = make.workload(cast.vision, "alone", by=cast.dave.user)
    chosen = {"w": [str(alone.pk)], "a": [str(sweep.pk), "nonsense"]}
    assert f'name="a" value="{sweep.pk}"' in text(sign_in("dave"), "/workloads")
    assert "Nothing to cancel" in sign_in("grace").get("/workloads/cancel", chosen).content.decode()
    dialog = sign_in("dave").get("/workloads/cancel", chosen, headers=HTMX).content.decode()
    assert "Cancel 1 workload and 1 array?" in dialog and "vision/sweep" in dialog
    only_array = sign_in("dave").get("/workloads/cancel", {"a": str(sweep.pk)}, headers=HTMX).content.decode()
    assert "Cancel 1 array?" in only_array
    answer = sign_in("dave").post("/workloads/cancel", chosen, headers=HTMX)
    assert "1 workload and 1 array cancelled." in answer.headers["HX-Trigger"]
    live = Workload.objects.filter(array=sweep, phase__in=("pending", "reserved"))
    assert not live.exists()
    alone.refresh_from_db()
    assert alone.phase == "cancelled"


def report_losses(sweep: WorkloadArray) -> None:
    for index, value in ((0, 1.0), (3, 2.0)):
        make.metric(Workload.objects.get(array=sweep, array_index=index), "loss", value, value)


def test_array_page_shows_which_tasks_its_stop_rule_will_stop(sweep: WorkloadArray, sign_in: SignIn) -> None:
    rule = {"metric": "loss", "after_steps": 5, "min_tasks": 1}
    sweep.spec = {**sweep.spec, "array": {**sweep.spec["array"], "stop": rule}}
    sweep.save(update_fields=["spec"])
    report_losses(sweep)
    client, url = sign_in("dave"), f"/arrays/{sweep.pk}"
    page = text(client, url)
    assert "is above the median of the other tasks at the same step, if" in page
    assert "Task 3 will be stopped: loss 2 at step 10, median 1 of 1 other task." in page
    sweep.task_count = 501
    sweep.save(update_fields=["task_count"])
    assert "Previews are available only for arrays of up to 500 tasks." in text(client, url)


@pytest.mark.heavy
def test_array_page_explains_why_no_task_runs(sweep: WorkloadArray, sign_in: SignIn) -> None:
    client, address = sign_in("dave"), f"/arrays/{sweep.pk}"
    assert "idle-tasks" not in text(client, address)
    tasks = Workload.objects.filter(array=sweep)
    tasks.filter(array_index=3).update(phase="completed", ended_at=make.ago(minutes=1))
    due = (timezone.now() + timedelta(hours=1)).replace(microsecond=0)
    for index, starts in ((4, due + timedelta(hours=1)), (5, due)):
        tasks.filter(array_index=index).update(
            reason="ProjectLimit", message="1 GPU requested.", held=False,
            explanation={"expected_start": starts.isoformat()},
        )  # fmt: skip
    page = client.get(address)
    notice = page.content.decode().partition('class="notice idle-tasks')[2].partition("</p>")[0]
    words = " ".join(re.sub(r"<[^>]+>", " ", notice).split()).replace(" :", ":")
    assert words.endswith("Project limit: 1 GPU requested ( sweep-4 ).")
    assert f"Next task starts at about {due:%Y-%m-%d %H:%M} UTC . 46 tasks queued." in words
    tasks.filter(held=False, phase="pending").update(
        reason="Unschedulable", message="requests 64 GPUs, but nodes have 8.", explanation=None
    )
    notice = text(client, address).partition("No task is running.")[2].partition("</p>")[0]
    words = " ".join(re.sub(r"<[^>]+>", " ", notice).split()).replace(" :", ":")
    assert words == "46 tasks can never start. Requests 64 GPUs, but nodes have 8 ( sweep-4 )."
    assert f'href="/workloads/{tasks.get(array_index=4).pk}"' in notice


def test_waiting_array_counts_as_pending_since_its_last_task_ended(
    sweep: WorkloadArray, sign_in: SignIn
) -> None:
    client, tasks, ended = sign_in("dave"), Workload.objects.filter(array=sweep), make.ago(minutes=4)
    title = text(client, f"/arrays/{sweep.pk}").partition("<h1>")[2].partition("</h1>")[0]
    assert ">Running" in title
    tasks.filter(array_index=3).update(
        phase="completed", first_started_at=make.ago(minutes=9), since=ended, ended_at=ended, gpu_milli_now=0
    )
    tasks.filter(array_index__gt=5).update(held=True)
    title = text(client, f"/arrays/{sweep.pk}").partition("<h1>")[2].partition("</h1>")[0]
    assert ">Pending" in title
    row = text(client, "/workloads").partition(f'id="a-{sweep.pk}"')[2].partition("</tr>")[0]
    assert ">Pending<" in row and '<span class="nowrap">2 of 120<' in row
    assert f'datetime="{ended.isoformat()}" data-style="lasting"' in row
    words = " ".join(re.sub(r"<[^>]+>", " ", row).split())
    assert "0 of 4 GPUs 2 per task" in words, words
