"""Tests for metrics on the workload page and the array page."""

import re

import pytest

from projects.models import Metric, Workload
from projects.services import arrays
from tests import factories as make
from tests.cast import Cast, training
from tests.web.conftest import SignIn


def test_metrics_tab_draws_each_metric_and_compares_two_workloads(cast: Cast, sign_in: SignIn) -> None:
    workload, other = make.workload(cast.vision, "train"), make.workload(cast.vision, "baseline")
    hidden = make.workload(cast.ads, "theirs")
    for each, value in ((workload, 0.25), (other, 0.125), (hidden, 0.5)):
        make.metric(each, "loss", 1.0, value)
    client, path = sign_in("dave"), f"/workloads/{workload.pk}/metrics"
    text = client.get(path).content.decode()
    assert 'aria-label="loss: 0.25 at step 10, lowest 0.25, highest 1"' in text
    assert f'<option value="{other.pk}">baseline' in text and "theirs" not in text
    compared = client.get(f"{path}/charts", {"with": str(other.pk)}).content.decode()
    assert 'class="line hue-1"' in compared and '<td class="num">0.125</td>' in compared
    for invalid in ("x", str(hidden.pk)):
        assert "hue-1" not in client.get(f"{path}/charts", {"with": invalid}).content.decode()
    assert sign_in("grace").get(f"{path}/charts").status_code == 404


@pytest.mark.parametrize(("not_finite", "parts"), [(3, 2), (0, 1)])
def test_metric_chart_has_a_gap_where_values_were_not_finite(
    cast: Cast, sign_in: SignIn, not_finite: int, parts: int
) -> None:
    workload = make.workload(cast.vision, "train")
    make.metric(workload, "loss", 1.0, 0.25)
    steps, values = [0, 10, 20, 60, 70, 80], [1.0, 0.9, 0.8, 0.4, 0.3, 0.25]
    Metric.objects.update(steps=steps, values=values, last_step=80, not_finite=not_finite)
    text = sign_in("dave").get(f"/workloads/{workload.pk}/metrics/charts").content.decode()
    line = re.search(r'<path class="line " d="([^"]+)"', text)
    assert line and line[1].count("M") == parts
    assert ("[21, null]" in text) == (parts == 2)


@pytest.mark.heavy
def test_metrics_tab_without_metrics_explains_how_to_report_metrics(cast: Cast, sign_in: SignIn) -> None:
    workload = make.workload(cast.vision, "train")
    text = sign_in("dave").get(f"/workloads/{workload.pk}/metrics").content.decode()
    assert "No metrics yet" in text and "berth.report(step, loss=0.31)" in text


def test_task_table_shows_the_best_value_of_the_ranked_metric(cast: Cast, sign_in: SignIn) -> None:
    document = {**training("sweep", array={"tasks": 3}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    client, path = sign_in("dave"), f"/arrays/{array.pk}"
    column = 'data-label="accuracy">'
    assert column not in client.get(path, {"rows": "all"}).content.decode()
    for task in Workload.objects.filter(array=array, array_index__lt=2):
        make.metric(task, "accuracy", 0.25 * ((task.array_index or 0) + 1), 0.125)
    for goal, values in (("min", ["0.125", "0.125"]), ("max", ["0.25", "0.5"])):
        page = client.get(path, {"rows": "all", "goal": goal}).content.decode()
        assert re.findall(rf"{column}([\d.]+)<", page) == values


def test_array_page_ranks_tasks_and_names_the_best_task(cast: Cast, sign_in: SignIn) -> None:
    document = {**training("sweep", array={"tasks": 3}), "project": "vision"}
    array = arrays.submit(actor=cast.dave, document=document).array
    client, path = sign_in("dave"), f"/arrays/{array.pk}"
    assert "Best task" not in client.get(path).content.decode()
    for task in Workload.objects.filter(array=array):
        make.metric(task, "accuracy", 0.1 * ((task.array_index or 0) + 1), 0.05)
        make.metric(task, "loss", 1.0 + (task.array_index or 0))
    best = client.get(path, {"metric": "loss"}).content.decode()
    assert ">sweep-0</a> <span>(loss 1 at step 0)" in best
    best = client.get(path, {"metric": "accuracy", "goal": "max"}).content.decode()
    assert ">sweep-2</a> <span>(accuracy 0.3 at step 0)" in best
    assert best.index(">sweep-2</a></th>") < best.index(">sweep-1</a></th>")
