"""Tests for tables in terminals and pipes and for other output formats."""

import json
from pathlib import Path

import httpx
import pytest

from berth.cli.printing.columns import workload_columns
from berth.cli.printing.output import Output, build_table
from berth.cli.printing.text import (
    format_age,
    format_duration,
    format_number,
    format_pairs,
    printable,
    utc_now,
)
from berth.client.models.workloads import Workload
from tests.cli.terminal import Terminal
from tests.client.stub_server import StubServer, page, problem, workload

UNSAFE_TEXT = "\x1b[31mred\x07\nnext\u202e"
MANY_ROWS = page(
    [workload(f"train-{number}", reason="WouldExceedFairShare", message="m" * 300) for number in range(3)]
)


def test_control_characters_are_escaped() -> None:
    assert printable(UNSAFE_TEXT) == "\\x1b[31mred\\x07\\nnext\\u202e"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59, "59s"), (60, "1m"), (3600, "1h"), (12_000, "3h20m"), (90_000, "1d")]
)
def test_duration_is_formatted_compactly(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(8.0, "8"), (0.5, "0.5"), (1.25, "1.25"), (None, "-"), (0, "0"), (12_345, "12,345")]
)
def test_number_is_formatted_without_trailing_zeros(value: float | None, text: str) -> None:
    assert format_number(value) == text


def test_missing_time_is_shown_as_a_dash() -> None:
    assert format_age(None, utc_now()) == "-"


def test_blocker_numbers_are_formatted_on_one_line() -> None:
    assert (
        format_pairs({"asked": 4.0, "biggest_block": 2, "role": "worker"})
        == "asked 4, biggest block 2, role worker"
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_table_fits_the_terminal_width(width: int) -> None:
    from rich.console import Console

    workloads = [
        Workload.model_validate(workload(f"train-{n}", reason="WouldExceedFairShare", message="m" * 300))
        for n in "ab"
    ]
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(build_table(workloads, workload_columns(utc_now()), Output.TABLE))
    lines = captured.get().splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    assert all("vision" in line and "running" in line for line in lines[1:])


def test_piped_table_is_not_truncated_or_coloured(terminal: Terminal) -> None:
    output = terminal.run("list", "--tasks", server=StubServer(MANY_ROWS)).stdout
    assert "\x1b" not in output
    assert output.count("m" * 300) == 3


def test_json_output_equals_the_response(terminal: Terminal) -> None:
    import json

    rows = [workload(f"train-{number}") for number in range(2)]
    output = terminal.run("list", "--tasks", "-o", "json", server=StubServer(page(rows))).stdout
    assert json.loads(output) == rows


def test_yaml_output_can_be_parsed(terminal: Terminal) -> None:
    import yaml

    output = terminal.run("list", "--tasks", "-o", "yaml", server=StubServer(page([workload()]))).stdout
    assert yaml.safe_load(output)[0]["name"] == "train"


def test_control_characters_in_server_messages_are_escaped(terminal: Terminal) -> None:
    result = terminal.run("list", server=StubServer(problem(403, detail=UNSAFE_TEXT)))
    assert result.exit_code == 1
    assert result.stderr == "berth: \\x1b[31mred\\x07\\nnext\\u202e.\n"


def test_why_command_lists_every_blocker_with_its_numbers(terminal: Terminal) -> None:
    explained = {
        "phase": "pending", "reason": "WouldExceedFairShare", "message": "Beyond its share.",
        "queue_position": 2,
        "ordering": ["within quota: no", "submitted earlier"], "expected_start": None,
        "blockers": [
            {
                "reason": "WouldExceedFairShare", "message": "Beyond.",
                "numbers": {"requested": 4000, "share": 2000},
            },
            {"reason": "Fragmented", "message": "In pieces.", "numbers": {"biggest_block": 1000}},
        ],
        "queue": {"project": {
            "name": "vision", "pool": "local", "quota": {"gpu": 0}, "requested": {"gpu": 2},
            "how": {"gpu": ["The queue has no quota.", "Fair share: 1 GPU."], "cpu": ["Fair share: no CPU."]},
        }},
        "explained_at": None, "cycle": 7,
        "pending_history": [
            {"reason": "ProjectLimit", "since": "2026-01-01T00:00:00Z", "until": "2026-01-01T00:03:00Z"},
            {"reason": "WouldExceedFairShare", "since": "2026-01-01T00:03:00Z", "until": None},
        ],
        "evictions": [{
            "id": 1, "at": "2026-01-01T00:00:00Z", "kind": "reclaim", "workload": workload()["id"],
            "workload_name": "train", "project": "vision", "preemptor_project": "ads", "gpus": 4,
            "victim": "vision/train", "preemptor": "a 4-GPU workload in project ads",
            "summary": "vision/train was reclaimed for a 4-GPU workload in project ads",
            "explanation": [
                "Rule: research held 8 GPUs.", "research: 8 GPUs allocated before, 4 GPUs after.",
            ],
        }],
    }  # fmt: skip
    sentence = "The workload would start now if node n3 were uncordoned."
    change = {"outcome": "change", "sentence": sentence, "change": {"kind": "node_opened", "subject": "n3"}}
    replies = [workload(), explained, change]
    server = StubServer(page([workload()]), *(httpx.Response(200, json=reply) for reply in replies))
    output = terminal.run("why", "train", server=server).stdout
    for part in (
        "vision/train is pending: WouldExceedFairShare\n",
        "WouldExceedFairShare: Beyond.\n  requested 4 GPUs, fair share 2 GPUs\n",
        "Fragmented: In pieces.\n  most free on one node 1 GPU\n",
        f"\n{sentence}\n",
        "Queue position 2 in local\n  within quota: no\n",
        "project vision: quota 0, requested 2 (GPUs in local)\n    The queue has no quota.\n",
        "    Fair share: 1 GPU.\n", "ProjectLimit 3m\n", " so far\n",
        "reclaim: vision/train was reclaimed for a 4-GPU workload in project ads\n",
        "    Rule: research held 8 GPUs.\n",
        "    research: 8 GPUs allocated before, 4 GPUs after.\n",
    ):  # fmt: skip
        assert part in output


def test_json_output_of_the_why_command_includes_the_smallest_change(terminal: Terminal) -> None:
    replies = [workload(), {"phase": "pending"}, {"outcome": "no_change", "sentence": "None."}]
    server = StubServer(page([workload()]), *(httpx.Response(200, json=reply) for reply in replies))
    printed = json.loads(terminal.run("why", "train", "-o", "json", server=server).stdout)
    assert (printed["phase"], printed["smallest_change"]["sentence"]) == ("pending", "None.")


@pytest.mark.parametrize("status", [404, 429])
def test_why_command_omits_the_smallest_change_if_the_server_rejects_the_search(
    terminal: Terminal, status: int
) -> None:
    explained = {"phase": "pending", "reason": "Backoff"}
    server = StubServer(
        page([workload()]), httpx.Response(200, json=workload()), httpx.Response(200, json=explained),
        problem(status, detail="Not now."),
    )  # fmt: skip
    result = terminal.run("why", "train", server=server)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "vision/train is pending: Backoff")
    assert "Not now." not in result.stdout


def test_why_command_requests_the_smallest_change_only_while_the_workload_is_pending(
    terminal: Terminal,
) -> None:
    replies = [workload(), {"phase": "running"}]
    server = StubServer(page([workload()]), *(httpx.Response(200, json=reply) for reply in replies))
    terminal.run("why", "train", server=server)
    assert not any(call.endswith("smallest-change") for call in server.calls)


def test_simulate_command_needs_no_server(terminal: Terminal, tmp_path: Path) -> None:
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


def test_simulate_command_prints_a_stopped_replica_once(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "format: berth.scenario/1\n"
        "nodes: [{name: n0, gpus: 4}]\n"
        "departments: [{name: research, quotas: {default: {gpu: 4}}}]\n"
        "projects:\n"
        "  - {name: owner, department: research, quotas: {default: {gpu: 3}}}\n"
        "  - {name: borrower, department: research, quotas: {default: {gpu: 0}}}\n"
        "workloads:\n"
        "  - {name: pair, project: borrower, roles: [{name: worker, replicas: 2, gpu: 1}],\n"
        "     pods: [{node: n0}, {node: n0}]}\n"
        "  - {name: new, project: owner, roles: [{name: worker, gpu: 3}]}\n"
    )
    states = []
    for cycles in ("1", "2"):
        result = json.loads(terminal.run("simulate", str(file), "--cycles", cycles, "-o", "json").stdout)
        pods = result["workloads"]["pair"]["pods"]
        states.append([(pod["index"], pod["state"], pod["node"]) for pod in pods])
    assert states == [
        [(0, "stopping", "n0"), (1, "stopping", "n0")],
        [(0, "pending", None), (1, "pending", None)],
    ]


def test_trace_command_with_plots_needs_no_server(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "vc_nodes.csv").write_text("vc,node_num\nred,4\nblue,4\n")
    file = tmp_path / "jobs.csv"
    file.write_text(
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-03 00:00:00,1000,16,0,red\n2017-10-03 00:10:00,50,8,0,blue\n"
    )
    result = terminal.run("trace", str(file), "--plots", str(tmp_path / "plots"))
    assert result.exit_code == 0
    assert "2 submitted, 2 completed" in result.stdout
    assert "1 by reclaim" in result.stdout
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"allocation.svg", "queue.svg"}
    figures = json.loads(terminal.run("trace", str(file), "--json", "--policy", "skip").stdout)
    assert figures["projects"]["blue"]["queueing"]["longest"] == 400


def test_missing_public_trace_is_reported_with_its_download_address(
    terminal: Terminal, tmp_path: Path
) -> None:
    for name in ("openb", "philly"):
        result = terminal.run("trace", name, "--data", str(tmp_path))
        assert result.exit_code == 2
        assert len(result.stderr.splitlines()) == 1
        assert "https://github.com/" in result.stderr


def test_quota_history_shows_expiries_and_later_changes(terminal: Terminal) -> None:
    quota = {"kind": "project", "name": "ads", "pool": "local", "before": {"gpu": 4}, "after": {"gpu": 2}}
    made = {"at": "2026-01-01T00:00:00Z", "actor": "ada", "comment": "n", "quotas": [quota], "hidden": 0}
    changes = [
        {**made, "id": 2, "expires_at": "2026-01-02T00:00:00Z"},
        {**made, "id": 1, "expires_at": "2026-01-02T00:00:00Z", "expired": "done", "reverted_by": 3,
         "superseded_by": 3},
        {**made, "id": 0, "superseded_by": 1},
    ]  # fmt: skip
    lines = terminal.run("quota", "history", server=StubServer(page(changes))).stdout.splitlines()
    assert lines[1].endswith("n, until 2026-01-02 00:00:00 UTC")
    assert lines[2].endswith("n, reverted by 3")
    assert lines[3].endswith("n, superseded by 1")


def test_rejected_cancellation_does_not_prevent_further_cancellations(terminal: Terminal) -> None:
    looked_up = [
        answer for name in ("theirs", "mine")
        for answer in (page([workload(name=name)]), httpx.Response(200, json=workload(name=name)))
    ]  # fmt: skip
    ended = httpx.Response(200, json=workload(name="mine", phase="cancelled"))
    rejection = problem(403, detail="Your role does not allow you to act on this workload.")
    server = StubServer(*looked_up, rejection, ended)
    result = terminal.run("cancel", "theirs", "mine", server=server)
    assert (result.exit_code, result.stdout) == (1, "vision/mine is cancelled\n")
    assert result.stderr == ("berth: vision/theirs: Your role does not allow you to act on this workload.\n")
