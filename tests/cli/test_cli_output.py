"""Tables in terminals and pipes, without control sequences."""

import json
from pathlib import Path

import httpx
import pytest

from berth.cli.columns import workload_columns
from berth.cli.output import Output, table_of
from berth.cli.text import age, now, number, pairs, safe, span
from berth.client.models.workloads import Workload
from tests.cli.desk_of_commands import Terminal
from tests.client.desk import Desk, page, problem, workload

EVIL = "\x1b[31mred\x07\nnext\u202e"
MANY = page([workload(f"train-{number}", reason="OverFairShare", message="m" * 300) for number in range(3)])


def test_control_characters_are_written_out() -> None:
    assert safe(EVIL) == "\\x1b[31mred\\x07\\nnext\\u202e"


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0s"), (59, "59s"), (60, "1m"), (3600, "1h"), (12_000, "3h20m"), (90_000, "1d")]
)
def test_spans_are_short(seconds: float, told: str) -> None:
    assert span(seconds) == told


@pytest.mark.parametrize(("value", "told"), [(8.0, "8"), (0.5, "0.5"), (1.25, "1.25"), (None, "-"), (0, "0")])
def test_numbers_carry_no_empty_places(value: float | None, told: str) -> None:
    assert number(value) == told


def test_what_never_was_has_no_age() -> None:
    assert age(None, now()) == "-"


def test_numbers_of_a_blocker_stand_on_one_line() -> None:
    assert (
        pairs({"asked": 4.0, "biggest_block": 2, "role": "worker"}) == "asked 4, biggest block 2, role worker"
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_fits_its_terminal(width: int) -> None:
    from rich.console import Console

    found = [
        Workload.model_validate(workload(f"train-{n}", reason="OverFairShare", message="m" * 300))
        for n in "ab"
    ]
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(table_of(found, workload_columns(now()), Output.TABLE))
    lines = captured.get().splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    assert all("vision" in line and "running" in line for line in lines[1:])


def test_a_pipe_gets_whole_lines_without_colour(terminal: Terminal) -> None:
    told = terminal.run("list", desk=Desk(MANY)).stdout
    assert "\x1b" not in told
    assert told.count("m" * 300) == 3


def test_json_is_what_the_server_said(terminal: Terminal) -> None:
    import json

    said = [workload(f"train-{number}") for number in range(2)]
    told = terminal.run("list", "-o", "json", desk=Desk(page(said))).stdout
    assert json.loads(told) == said


def test_yaml_reads_back(terminal: Terminal) -> None:
    import yaml

    told = terminal.run("list", "-o", "yaml", desk=Desk(page([workload()]))).stdout
    assert yaml.safe_load(told)[0]["name"] == "train"


def test_evil_messages_of_a_server_are_harmless(terminal: Terminal) -> None:
    told = terminal.run("list", desk=Desk(problem(403, detail=EVIL)))
    assert told.exit_code == 1
    assert told.stderr == "berth: \\x1b[31mred\\x07\\nnext\\u202e\n"


def test_why_tells_every_blocker_with_its_numbers(terminal: Terminal) -> None:
    explained = {
        "phase": "pending", "reason": "OverFairShare", "message": "Beyond its share.", "queue_position": 2,
        "ordering": ["within quota: no", "submitted earlier"], "expected_start": None,
        "blockers": [
            {"reason": "OverFairShare", "message": "Beyond.", "numbers": {"requested": 4000, "share": 2000}},
            {"reason": "Fragmented", "message": "In pieces.", "numbers": {"biggest_block": 1000}},
        ],
        "queue": {"project": {
            "name": "vision", "pool": "local", "quota": {"gpu": 0}, "requested": {"gpu": 2},
            "how": {"gpu": ["It has no quota.", "Fair share: 1 GPU."], "cpu": ["It asks for none."]},
        }},
        "explained_at": None, "cycle": 7,
        "pending_history": [
            {"reason": "ProjectLimit", "since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:03:00Z"},
            {"reason": "OverFairShare", "since": "2026-01-01T00:03:00Z", "until": None},
        ],
        "evictions": [{
            "id": 1, "at": "2026-01-01T00:00:00Z", "kind": "reclaim", "workload": workload()["id"],
            "workload_name": "train", "project": "vision", "preemptor_project": "ads", "gpus": 4,
            "victim": "vision/train", "preemptor": "a 4-GPU workload of project ads",
            "summary": "vision/train was reclaimed for a 4-GPU workload of project ads",
            "explanation": [
                "Rule: research held 8 GPUs.", "research: 8 GPUs allocated before, 4 GPUs after.",
            ],
        }],
    }  # fmt: skip
    desk = Desk(page([workload()]), httpx.Response(200, json=workload()), httpx.Response(200, json=explained))
    told = terminal.run("why", "train", desk=desk).stdout
    for part in (
        "vision/train is pending: OverFairShare\n",
        "OverFairShare: Beyond.\n  requested 4 GPUs, fair share 2 GPUs\n",
        "Fragmented: In pieces.\n  largest free block 1 GPU\n",
        "Queue position 2 in local\n  within quota: no\n",
        "project vision: quota 0, requested 2 (GPUs in local)\n    It has no quota.\n",
        "    Fair share: 1 GPU.\n", "ProjectLimit 3m\n", " so far\n",
        "reclaim: vision/train was reclaimed for a 4-GPU workload of project ads\n",
        "    Rule: research held 8 GPUs.\n",
        "    research: 8 GPUs allocated before, 4 GPUs after.\n",
    ):  # fmt: skip
        assert part in told


def test_a_simulation_needs_no_server(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "format: berth.scenario/1\n"
        "nodes: [{name: n0, pool: default, gpus: 8, cpu: 64, memory_mib: 512000}]\n"
        "departments: [{name: research, quotas: {default: {gpu: 8}}}]\n"
        "projects: [{name: vision, department: research, quotas: {default: {gpu: 8}}}]\n"
        "workloads: [{name: train, project: vision, roles: [{replicas: 4, gpu: 2}]}]\n"
    )
    assert "start train: 4 x worker to n0" in terminal.run("simulate", str(file)).stdout
    bad = terminal.run("simulate", str(file), "--actions", "pray")
    assert bad.exit_code == 2
    assert "no such action" in bad.stderr


def test_a_trace_is_played_and_drawn_without_a_server(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "vc_nodes.csv").write_text("vc,node_num\nred,4\nblue,4\n")
    file = tmp_path / "jobs.csv"
    file.write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-03 00:00:00,1000,16,0,red\n2017-10-03 00:10:00,50,8,0,blue\n"
    )
    told = terminal.run("trace", str(file), "--plots", str(tmp_path / "plots"))
    assert told.exit_code == 0
    assert "2 submitted, 2 completed" in told.stdout
    assert "1 by reclaim" in told.stdout
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"allocation.svg", "queue.svg"}
    figures = json.loads(terminal.run("trace", str(file), "--json", "--policy", "skip").stdout)
    assert figures["projects"]["blue"]["queueing"]["longest"] == 400


def test_a_public_trace_that_is_not_here_is_told_where_it_is(terminal: Terminal, tmp_path: Path) -> None:
    for name in ("openb", "philly"):
        told = terminal.run("trace", name, "--data", str(tmp_path))
        assert told.exit_code == 2
        assert len(told.stderr.splitlines()) == 1
        assert "https://github.com/" in told.stderr


def test_a_quota_that_lapses_says_until_when_in_its_history(terminal: Terminal) -> None:
    quota = {"kind": "project", "name": "ads", "pool": "local", "before": {"gpu": 4}, "after": {"gpu": 2}}
    made = {"at": "2026-01-01T00:00:00Z", "actor": "ada", "comment": "n", "quotas": [quota], "hidden": 0}
    changes = [
        {**made, "id": 2, "expires_at": "2026-01-02T00:00:00Z"},
        {**made, "id": 1, "expires_at": "2026-01-02T00:00:00Z", "expired": "done", "reverted_by": 3},
    ]
    told = terminal.run("quota", "history", desk=Desk(page(changes))).stdout.splitlines()
    assert told[1].endswith("n, until 2026-01-02 00:00:00 UTC")
    assert told[2].endswith("n, reverted by 3")


def test_who_is_refused_among_several_is_named_and_holds_up_nobody(terminal: Terminal) -> None:
    looked_up = [
        answer for name in ("theirs", "mine")
        for answer in (page([workload(name=name)]), httpx.Response(200, json=workload(name=name)))
    ]  # fmt: skip
    ended = httpx.Response(200, json=workload(name="mine", phase="cancelled"))
    refusal = problem(403, detail="Your role does not allow you to act on this workload.")
    desk = Desk(*looked_up, refusal, ended)
    told = terminal.run("cancel", "theirs", "mine", desk=desk)
    assert (told.exit_code, told.stdout) == (1, "vision/mine is cancelled\n")
    assert told.stderr == ("berth: vision/theirs: Your role does not allow you to act on this workload.\n")
