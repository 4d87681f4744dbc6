"""Traces are read exactly and replayed faithfully."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from scheduler.simulator.replay.figures import figures
from scheduler.simulator.replay.files import find, smaller
from scheduler.simulator.replay.plots import plots, sampled
from scheduler.simulator.replay.policies import play
from scheduler.simulator.replay.policy import Policy
from scheduler.simulator.replay.records import Records, area
from scheduler.simulator.replay.trace import Trace
from scheduler.simulator.scenario.errors import ScenarioError

NODES = "vc,node_num\nred,4\nblue,4\n"  # a quarter each: one node of 8 GPUs
HEAD = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def philly(folder: Path, *jobs: str, nodes: str = NODES) -> Trace:
    """Jobs as `second duration gpus cluster`."""
    rows = []
    for job in jobs:
        second, duration, gpus, cluster = job.split()
        minutes, seconds = divmod(int(second), 60)
        at = f"2017-10-03 {minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
        rows.append(f"{at},{duration},{gpus},0,{cluster}")
    (folder / "jobs.csv").write_text(HEAD + "\n".join(rows) + "\n")
    (folder / "my_vc_nodes.csv").write_text(nodes)
    return find(str(folder / "jobs.csv"), folder)


def played(
    trace: Trace, policy: Policy = Policy.FAIR, checkpoint: int | None = None
) -> tuple[Records, dict[str, Any]]:
    records = Records(trace)
    last = None
    for last in play(trace, policy, records, checkpoint=checkpoint):  # noqa: B007
        pass
    assert last is not None
    return records, figures(records, last.now)


def test_a_job_starts_when_it_comes_and_ends_when_it_has_run(tmp_path: Path) -> None:
    records, told = played(philly(tmp_path, "0 100 8 red", "10 50 1 blue"))
    assert told["jobs"] == {"arrived": 2, "completed": 2, "never_started": 0}
    assert told["queueing"]["longest"] == 0
    assert [job.ended - job.submitted for job in records.jobs.values() if job.ended] == [100, 50]


def test_nobody_comes_before_its_time(tmp_path: Path) -> None:
    records, _ = played(philly(tmp_path, "500 10 1 red", "0 10 1 red"))
    assert all(job.first_start == job.submitted for job in records.jobs.values())


def test_cycles_apart_gather_what_happens_meanwhile(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 100 1 red", "10 100 1 red", "20 100 1 red")
    records = Records(trace)
    for last in play(trace, Policy.FAIR, records, apart=60):
        step = last
    starts = sorted((job.first_start or 0) - trace.begins for job in records.jobs.values())
    assert starts == [0, 60, 60]  # the first at once, the others in the next cycle
    assert (step.cycles, step.ended) == (2, 3)


def test_borrowed_gpus_come_back_and_the_work_lost_is_told(tmp_path: Path) -> None:
    """Red borrows blue's node for 16 GPUs; blue comes at 100 and has its own after the time to stop."""
    _, told = played(philly(tmp_path, "0 1000 16 red", "100 50 8 blue"))
    blue, red = told["projects"]["blue"], told["projects"]["red"]
    assert blue["in_quota"]["longest"] == blue["queueing"]["longest"] == 10
    assert told["evictions"] == {"reclaim": 1}
    assert red["lost_gpu_hours"] == pytest.approx(16 * 100 / 3600, abs=0.05)
    assert told["jobs"]["completed"] == 2


def test_who_gives_way_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 1000 8 red", "1 1000 8 red", "501 100 8 blue")
    anew, told_anew = played(trace)
    goes_on, told = played(trace, checkpoint=200)
    victim = next(job for job in goes_on.jobs.values() if job.stops)
    ran = 501 - (0 if victim.submitted == trace.begins else 1)  # until it had to give way
    assert (told["lost_gpu_hours"], told_anew["lost_gpu_hours"]) == (
        round((ran - 400) * 8 / 3600, 1),
        round(ran * 8 / 3600, 1),
    )
    ends = {name: job.ended for name, job in anew.jobs.items()}
    assert goes_on.jobs[victim.name].ended == (ends[victim.name] or 0) - 400
    assert told["jobs"]["completed"] == 3


def test_waiting_beyond_the_quota_is_not_waiting_in_quota(tmp_path: Path) -> None:
    _, told = played(philly(tmp_path, "0 100 8 red", "0 100 8 blue", "0 100 8 red"))
    assert told["projects"]["red"]["queueing"]["longest"] == 100
    assert told["projects"]["red"]["in_quota"]["longest"] == 0


def test_without_skipping_the_first_holds_up_all(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 100 8 red", "1 100 16 red", "2 10 1 blue")
    assert played(trace, Policy.FIFO)[1]["projects"]["blue"]["queueing"]["longest"] == 198
    assert played(trace, Policy.SKIP)[1]["projects"]["blue"]["queueing"]["longest"] == 0


def test_a_static_partition_lends_nothing(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 100 8 red", "0 100 8 red", "0 10 1 blue")
    for policy in (Policy.STATIC_FIFO, Policy.STATIC_SKIP):
        _, told = played(trace, policy)
        assert told["projects"]["red"]["queueing"]["longest"] == 100
        assert told["projects"]["blue"]["queueing"]["longest"] == 0
    assert played(trace, Policy.SKIP)[1]["projects"]["red"]["queueing"]["longest"] == 0


def test_what_never_fits_is_told_and_the_replay_ends(tmp_path: Path) -> None:
    for policy in Policy:
        _, told = played(philly(tmp_path, "0 10 64 red", "0 10 1 red"), policy)
        assert told["jobs"]["never_started"] >= 1
        assert told["jobs"]["arrived"] == 2


def test_parts_of_gpus_and_models_are_read_from_openb(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
        "scheduled_time\n"
        "a,1000,100,1,500,T4|V100,LS,Running,0,100,0\nb,1000,100,1,500,,LS,Running,0,100,0\n"
        "c,1000,100,1,1000,A100,LS,Running,0,100,0\nd,1000,100,0,0,,BE,Running,5,60,\n"
    )
    (tmp_path / "node_list.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,64000,1000,1,T4\n")
    for policy in (Policy.FAIR, Policy.SKIP):
        _, told = played(find(str(tmp_path / "pods.csv"), tmp_path), policy)
        assert told["jobs"] == {"arrived": 4, "completed": 3, "never_started": 1}  # no A100 here
        assert told["queueing"]["p50"] == 0


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("2017-10-03 00:00:00,ten,1,0,red", "line 2, duration"),
        ("2017-10-03 00:00:00,10,0,0,red", "line 2, num_gpus"),
        ("2017-10-03 00:00:00,inf,1,0,red", "line 2, duration"),
        ("2017-10-03 00:00:00,nan,1,0,red", "line 2, duration"),
        ("yesterday,10,1,0,red", "line 2, timestamp"),
        ("2017-10-03 00:00:00,10,1,0,", "line 2, cluster"),
        ("2017-10-03 00:00:00", "line 2, cluster"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused_with_its_line(tmp_path: Path, row: str, said: str) -> None:
    (tmp_path / "jobs.csv").write_text(HEAD + row + "\n")
    (tmp_path / "my_vc_nodes.csv").write_text(NODES)
    with pytest.raises(ScenarioError) as refused:
        find(str(tmp_path / "jobs.csv"), tmp_path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_scenario_is_a_trace_too() -> None:
    example = Path(__file__).parents[2] / "examples" / "scenarios" / "reclaim.yaml"
    _, told = played(find(str(example), Path()))
    assert told["jobs"]["never_started"] == 0
    assert told["evictions"] == {"reclaim": 1}


def test_who_runs_from_the_beginning_waited_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(
        "format: berth.scenario/1\nnow: 2026-01-01T12:00:00Z\nnodes: [{name: n0, gpus: 1}]\n"
        "departments: [{name: d, quotas: {default: {gpu: 1}}}]\n"
        "projects: [{name: p, department: d, quotas: {default: {gpu: 1}}}]\n"
        "workloads: [{name: a, project: p, runtime_seconds: 60, roles: [{gpu: 1}],"
        " pods: [{node: n0, started: 2026-01-01T11:00:00Z}]}]\n"
    )
    _, told = played(find(str(tmp_path / "cluster.yaml"), tmp_path))
    assert (told["until_first_start"]["average"], told["queueing"]["average"]) == (0, 0)


def test_missing_trace_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"document: cannot be read: No such file or directory; received"):
        find(str(tmp_path / "none.csv"), tmp_path)


def test_nodes_are_drawn_by_the_seed(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 10 1 red", "1 10 1 red", nodes="vc,node_num\nred,64\n")
    one, same, other = (smaller(trace, 5, 1, seed).cluster.nodes for seed in (1, 1, 2))
    assert one == same != other
    assert len(smaller(trace, 5, 1, 1).arrivals) == 1


def test_pictures_stand_by_themselves_and_keep_names_harmless(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 100 8 <b>&", "10 50 1 <b>&", nodes="vc,node_num\n<b>&,4\n")
    records, _ = played(trace)
    for text in plots(records, trace.begins + 100).values():
        picture = ET.fromstring(text)
        assert picture.tag.endswith("svg")
        assert not picture.findall(".//{http://www.w3.org/2000/svg}script")


def test_a_step_function_keeps_its_area_when_it_is_sampled() -> None:
    curve = [(0, 3.0), (7, 1.0), (400, 5.0), (401, 0.0), (900, 2.0)]
    means = sampled(curve, 0, 1000)
    assert sum(means) * 1000 / len(means) == pytest.approx(area(curve, 0, 1000))
