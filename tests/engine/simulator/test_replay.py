"""Tests for traces and their replay."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from scheduler.simulator.replay.figures import summary_figures
from scheduler.simulator.replay.files import load_trace, shrink_trace
from scheduler.simulator.replay.plots import draw_plots, sample_curve
from scheduler.simulator.replay.policies import Policy, play
from scheduler.simulator.replay.records import Records, integrate
from scheduler.simulator.replay.trace import Trace
from scheduler.simulator.scenario.errors import ScenarioError

NODES = "vc,node_num\nred,4\nblue,4\n"  # scaled to a quarter, each queue has one node of 8 GPUs
HEAD = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def philly(folder: Path, *jobs: str, nodes: str = NODES) -> Trace:
    rows = []
    for job in jobs:
        second, duration, gpus, cluster = job.split()
        minutes, seconds = divmod(int(second), 60)
        at = f"2017-10-03 {minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
        rows.append(f"{at},{duration},{gpus},0,{cluster}")
    (folder / "jobs.csv").write_text(HEAD + "\n".join(rows) + "\n")
    (folder / "my_vc_nodes.csv").write_text(nodes)
    return load_trace(str(folder / "jobs.csv"), folder)


def replay(
    trace: Trace, policy: Policy = Policy.FAIR, checkpoint: int | None = None
) -> tuple[Records, dict[str, Any]]:
    records = Records(trace)
    last = None
    for last in play(trace, policy, records, checkpoint=checkpoint):  # noqa: B007
        pass
    assert last is not None
    return records, summary_figures(records, last.now)


def test_job_starts_on_arrival_and_ends_after_its_duration(tmp_path: Path) -> None:
    records, summary = replay(philly(tmp_path, "0 100 8 red", "10 50 1 blue"))
    assert summary["jobs"] == {"arrived": 2, "completed": 2, "never_started": 0}
    assert summary["queueing"]["longest"] == 0
    assert [job.ended - job.submitted for job in records.jobs.values() if job.ended] == [100, 50]


def test_no_job_starts_before_its_arrival(tmp_path: Path) -> None:
    records, _ = replay(philly(tmp_path, "500 10 1 red", "0 10 1 red"))
    assert all(job.first_start == job.submitted for job in records.jobs.values())


def test_longer_cycles_batch_more_arrivals(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 100 1 red", "10 100 1 red", "20 100 1 red")
    records = Records(trace)
    for last in play(trace, Policy.FAIR, records, min_cycle_seconds=60):
        step = last
    starts = sorted((job.first_start or 0) - trace.start_time for job in records.jobs.values())
    assert starts == [0, 60, 60]  # the first job starts at once, the others in the next cycle
    assert (step.cycles, step.ended) == (2, 3)


def test_borrowed_gpus_are_reclaimed_and_lost_work_is_reported(tmp_path: Path) -> None:
    # Red's 16-GPU job borrows blue's node. Blue arrives at 100 and gets the node after the grace period.
    _, summary = replay(philly(tmp_path, "0 1000 16 red", "100 50 8 blue"))
    blue, red = summary["projects"]["blue"], summary["projects"]["red"]
    assert blue["in_quota"]["longest"] == blue["queueing"]["longest"] == 10
    assert summary["evictions"] == {"reclaim": 1}
    assert red["lost_gpu_hours"] == pytest.approx(16 * 100 / 3600, abs=0.05)
    assert summary["jobs"]["completed"] == 2


def test_evicted_job_resumes_from_its_last_checkpoint(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 1000 8 red", "1 1000 8 red", "501 100 8 blue")
    anew, summary_anew = replay(trace)
    goes_on, summary = replay(trace, checkpoint=200)
    victim = next(job for job in goes_on.jobs.values() if job.stops)
    ran = 501 - (0 if victim.submitted == trace.start_time else 1)  # seconds until the victim's eviction
    assert (summary["lost_gpu_hours"], summary_anew["lost_gpu_hours"]) == (
        round((ran - 400) * 8 / 3600, 1),
        round(ran * 8 / 3600, 1),
    )
    ends = {name: job.ended for name, job in anew.jobs.items()}
    assert goes_on.jobs[victim.name].ended == (ends[victim.name] or 0) - 400
    assert summary["jobs"]["completed"] == 3


def test_pending_time_over_quota_does_not_count_as_pending_time_in_quota(tmp_path: Path) -> None:
    _, summary = replay(philly(tmp_path, "0 100 8 red", "0 100 8 blue", "0 100 8 red"))
    assert summary["projects"]["red"]["queueing"]["longest"] == 100
    assert summary["projects"]["red"]["in_quota"]["longest"] == 0


def test_strict_fifo_policy_blocks_jobs_behind_the_first_job(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 100 8 red", "1 100 16 red", "2 10 1 blue")
    assert replay(trace, Policy.FIFO)[1]["projects"]["blue"]["queueing"]["longest"] == 198
    assert replay(trace, Policy.SKIP)[1]["projects"]["blue"]["queueing"]["longest"] == 0


def test_static_partitions_lend_no_gpus(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 100 8 red", "0 100 8 red", "0 10 1 blue")
    for policy in (Policy.STATIC_FIFO, Policy.STATIC_SKIP):
        _, summary = replay(trace, policy)
        assert summary["projects"]["red"]["queueing"]["longest"] == 100
        assert summary["projects"]["blue"]["queueing"]["longest"] == 0
    assert replay(trace, Policy.SKIP)[1]["projects"]["red"]["queueing"]["longest"] == 0


def test_job_that_never_fits_is_reported_and_the_replay_ends(tmp_path: Path) -> None:
    for policy in Policy:
        _, summary = replay(philly(tmp_path, "0 10 64 red", "0 10 1 red"), policy)
        assert summary["jobs"]["never_started"] >= 1
        assert summary["jobs"]["arrived"] == 2


def test_openb_trace_has_gpu_fractions_and_models(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
        "scheduled_time\n"
        "a,1000,100,1,500,T4|V100,LS,Running,0,100,0\nb,1000,100,1,500,,LS,Running,0,100,0\n"
        "c,1000,100,1,1000,A100,LS,Running,0,100,0\nd,1000,100,0,0,,BE,Running,5,60,\n"
    )
    (tmp_path / "node_list.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn,64000,1000,1,T4\n")
    for policy in (Policy.FAIR, Policy.SKIP):
        _, summary = replay(load_trace(str(tmp_path / "pods.csv"), tmp_path), policy)
        assert summary["jobs"] == {"arrived": 4, "completed": 3, "never_started": 1}  # the nodes have no A100
        assert summary["queueing"]["p50"] == 0


@pytest.mark.parametrize(
    ("row", "message"),
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
def test_unreadable_trace_row_is_rejected_with_its_line_number(
    tmp_path: Path, row: str, message: str
) -> None:
    (tmp_path / "jobs.csv").write_text(HEAD + row + "\n")
    (tmp_path / "my_vc_nodes.csv").write_text(NODES)
    with pytest.raises(ScenarioError) as rejected:
        load_trace(str(tmp_path / "jobs.csv"), tmp_path)
    assert message in str(rejected.value)
    assert "\n" not in str(rejected.value)


def test_scenario_can_be_replayed_as_a_trace() -> None:
    example = Path(__file__).parents[3] / "examples" / "scenarios" / "reclaim.yaml"
    _, summary = replay(load_trace(str(example), Path()))
    assert summary["jobs"]["never_started"] == 0
    assert summary["evictions"] == {"reclaim": 1}


def test_job_running_at_the_start_has_no_pending_time(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(
        "format: berth.scenario/1\nnow: 2026-01-01T12:00:00Z\nnodes: [{name: n0, gpus: 1}]\n"
        "departments: [{name: d, quotas: {default: {gpu: 1}}}]\n"
        "projects: [{name: p, department: d, quotas: {default: {gpu: 1}}}]\n"
        "workloads: [{name: a, project: p, runtime_seconds: 60, roles: [{gpu: 1}],"
        " pods: [{node: n0, started: 2026-01-01T11:00:00Z}]}]\n"
    )
    _, summary = replay(load_trace(str(tmp_path / "cluster.yaml"), tmp_path))
    assert (summary["until_first_start"]["average"], summary["queueing"]["average"]) == (0, 0)


def test_missing_trace_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"document: cannot be read: No such file or directory; received"):
        load_trace(str(tmp_path / "none.csv"), tmp_path)


def test_generated_nodes_depend_on_the_seed(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 10 1 red", "1 10 1 red", nodes="vc,node_num\nred,64\n")
    one, same, other = (shrink_trace(trace, 5, 1, seed).cluster.nodes for seed in (1, 1, 2))
    assert one == same != other
    assert len(shrink_trace(trace, 5, 1, 1).arrivals) == 1


def test_charts_are_self_contained_and_escape_names(tmp_path: Path) -> None:
    trace = philly(tmp_path, "0 100 8 <b>&", "10 50 1 <b>&", nodes="vc,node_num\n<b>&,4\n")
    records, _ = replay(trace)
    for text in draw_plots(records, trace.start_time + 100).values():
        picture = ET.fromstring(text)
        assert picture.tag.endswith("svg")
        assert not picture.findall(".//{http://www.w3.org/2000/svg}script")


def test_sampling_a_step_function_preserves_its_area() -> None:
    curve = [(0, 3.0), (7, 1.0), (400, 5.0), (401, 0.0), (900, 2.0)]
    means = sample_curve(curve, 0, 1000)
    assert sum(means) * 1000 / len(means) == pytest.approx(integrate(curve, 0, 1000))
