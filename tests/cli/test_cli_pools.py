"""Claims about the commands for node pools and nodes."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth.cli.exits import BadInput
from berth.cli.pool_values import nodes_of
from tests.cli.desk_of_commands import Terminal
from tests.client.desk import Desk, page, problem

HAS = {"gpu": 8.0, "cpu": 64.0, "memory_mib": 1024}


def pool(**fields: Any) -> httpx.Response:
    return httpx.Response(200, headers={"ETag": '"7"'}, json={
        "name": "train", "provider": "aws", "runtime": "ray", "nodes_min": 2, "ready_threshold": None,
        "nodes_max": 16, "nodes_desired": 4, "nodes_ready": 3, "nodes_pending": 1, "nodes_draining": 0,
        "capacity": HAS, "free": HAS, "paused": False, "expires_at": None, "last_error": None,
        "gpus_per_node": 8, "gpu_model": "H100", "cpu": 64, "memory_mib": 1024, "version": 7, **fields,
    })  # fmt: skip


def node(state: str, work: list[str] | None = None) -> httpx.Response:
    return httpx.Response(200, json={"name": "train-1", "state": state, "work": work, "free": HAS})


def sent(desk: Desk) -> Any:
    return json.loads(desk.requests[-1].content)


@pytest.mark.shows("SKY-02", "SKY-10", "SKY-19")
@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("4", 4),
        ("2:16", [2, 16]),
        ("min=8,desired=4", {"min": 8, "desired": 4}),
        ("min=4,desired=2,max=16", {"min": 4, "desired": 2, "max": 16}),
    ],
)
def test_four_notations_of_a_number_of_nodes(
    terminal: Terminal, tmp_path: Path, typed: str, given: object
) -> None:
    desk = Desk(pool())
    told = terminal.run("pool", "create", "train", "--nodes", typed, "--memory", "2Gi", desk=desk)
    assert (told.exit_code, told.stdout) == (0, "train: active, 4 nodes desired, 2 to 16\n")
    assert sent(desk) == {"name": "train", "nodes": given, "memory_mib": 2048}
    file = tmp_path / "pool.yaml"
    file.write_text(f"name: train\nnodes: {json.dumps(given)}\nlabels: {{zone: a}}\n")
    terminal.run("pool", "create", "-f", str(file), "--label", "zone=b", desk=(again := Desk(pool())))
    assert sent(again) == {"name": "train", "nodes": given, "labels": {"zone": "b"}}


def test_a_time_is_sent_as_it_was_written(terminal: Terminal, tmp_path: Path) -> None:
    desk = Desk(pool(), pool())
    given = ("--set", "expires_at=2031-05-01T08:00:00Z")
    told = terminal.run("pool", "edit", "train", *given, desk=desk)
    assert (told.exit_code, sent(desk)) == (0, {"expires_at": "2031-05-01T08:00:00+00:00"})
    (file := tmp_path / "pool.yaml").write_text("name: train\nexpires_at: 2031-05-01T08:00:00Z\n")
    terminal.run("pool", "create", "-f", str(file), desk=(again := Desk(pool())))
    assert sent(again) == {"name": "train", "expires_at": "2031-05-01T08:00:00+00:00"}


def test_a_pool_that_was_never_used_is_deleted_and_another_is_not(terminal: Terminal) -> None:
    desk = Desk(httpx.Response(204))
    told = terminal.run("pool", "delete", "tryout", desk=desk)
    assert (told.exit_code, told.stdout, desk.asked) == (
        0, "tryout deleted\n", ["DELETE /api/v1/node-pools/tryout"],
    )  # fmt: skip
    kept = terminal.run("pool", "delete", "train", desk=Desk(problem(409, detail="It has a history.")))
    assert (kept.exit_code, kept.stderr) == (5, "berth: It has a history.\n")


@pytest.mark.shows("SKY-18")
@pytest.mark.parametrize("typed", ["", "four", "1:2:3", "min=4,min=5", "min=x", "min", "2-16", "1:"])
def test_no_number_of_nodes_is_told_in_one_line(terminal: Terminal, typed: str) -> None:
    with pytest.raises(BadInput, match="--nodes: is not a number of nodes; received '"):
        nodes_of(typed)
    told = terminal.run("pool", "create", "train", "--nodes", typed)
    assert (told.exit_code, len(told.stderr.splitlines())) == (2, 1)


@pytest.mark.shows("SKY-18")
def test_what_the_server_refuses_names_its_field(terminal: Terminal) -> None:
    fault = {"path": "nodes.max", "message": "is below nodes.min", "received": "3", "allowed": "at least 4"}
    told = terminal.run("pool", "create", "x", "--nodes", "4:3", desk=Desk(problem(422, errors=[fault])))
    assert told.exit_code == 2
    assert told.stderr.startswith("berth: nodes.max: is below nodes.min")
    assert len(told.stderr.splitlines()) == 1


def test_an_edit_goes_by_the_version_that_was_seen(terminal: Terminal) -> None:
    desk = Desk(pool())
    told = terminal.run("pool", "edit", "train", "--set", "taints=[{key: a}]", "--price", "2.5", desk=desk)
    assert told.exit_code == 0
    assert desk.requests[-1].headers["If-Match"] == '"7"'
    assert sent(desk) == {"taints": [{"key": "a"}], "price_per_gpu_hour": 2.5}
    assert terminal.run("pool", "edit", "train").exit_code == 2
    assert terminal.run("pool", "edit", "--nodes", "4").exit_code == 2


@pytest.mark.parametrize(
    ("words", "asked", "body"),
    [
        (("scale", "train", "3"), "POST /api/v1/node-pools/train/scale", {"nodes": 3}),
        (("drain", "train", "--reason", "move"), "POST /api/v1/node-pools/train/drain", {"reason": "move"}),
        (("pause", "train"), "POST /api/v1/node-pools/train/pause", None),
        (("resume", "train"), "POST /api/v1/node-pools/train/resume", None),
        (("retry", "train"), "POST /api/v1/node-pools/train/retry", None),
    ],
)
def test_steps_of_a_pool(terminal: Terminal, words: tuple[str, ...], asked: str, body: object) -> None:
    desk = Desk(pool(paused=True, state="paused"))
    told = terminal.run("pool", *words, desk=desk)
    assert told.stdout == "train: paused, 4 nodes desired, 2 to 16\n"
    assert desk.asked == [asked]
    assert body is None or sent(desk) == body
    assert terminal.run("pool", *words, desk=Desk(problem(409, detail="No."))).exit_code == 5
    assert terminal.run("pool", *words, desk=Desk(problem(404, detail="None."))).exit_code == 4


def test_a_pool_is_described(terminal: Terminal) -> None:
    spent = {"node_hours": 1.0, "gpu_hours": 8.0, "cost": 20.0}
    cost = {"price_per_gpu_hour": 2.5, "per_hour": 60.0, "last_24_hours": spent, "last_30_days": spent}
    levels = [{"gpus": 0, "nodes": 1, "replicas": 0}, {"gpus": 2, "nodes": 3, "replicas": 3}]
    pieces = {"nodes": 4, "free_gpus": 6, "free_in_parts": 0, "levels": levels}
    parts = [httpx.Response(200, json=cost), httpx.Response(200, json=pieces)]
    failed = {"boot_failures": 5, "boot_failure_limit": 5, "provisioning_stopped": True}
    answers = (pool(last_error="quota: no more", state="failing", **failed), *parts)
    told = terminal.run("pool", "describe", "train", desk=Desk(*answers)).stdout
    for part in ("3 ready, 1 booting, 0 draining", "3 x 2 GPUs", "60 per hour now",
                 "State:         failing, 4 nodes desired", "Last error:    quota: no more",
                 "Boots:         5 of 5 failed in a row; provisioning stopped"):  # fmt: skip
        assert part in told
    whole = json.loads(terminal.run("pool", "describe", "train", "-o", "json", desk=Desk(*answers)).stdout)
    assert (whole["name"], whole["cost"], whole["fragmentation"]) == ("train", cost, pieces)


def test_history_is_told_the_latest_last(terminal: Terminal) -> None:
    events = [
        {"id": 2, "at": "2026-01-01T00:00:09Z", "kind": "error", "reason": "ordering 2 nodes: quota"},
        {"id": 1, "at": "2026-01-01T00:00:00Z", "kind": "autoscale", "before": 0, "after": 2,
         "reason": "4 queued"},
    ]  # fmt: skip
    desk = Desk(page(events))
    lines = terminal.run("pool", "history", "train", "--limit", "2", desk=desk).stdout.splitlines()
    assert "0 -> 2" in lines[1]
    assert "ordering 2 nodes: quota" in lines[2]
    assert "limit=2" in desk.asked[0]


@pytest.mark.parametrize("step", ["cordon", "drain", "uncordon"])
def test_steps_of_a_node(terminal: Terminal, step: str) -> None:
    desk = Desk(node("cordoned"))
    told = terminal.run("node", step, "train-1", desk=desk)
    assert (told.exit_code, told.stdout) == (0, "train-1 is cordoned\n")
    assert desk.asked == [f"POST /api/v1/nodes/train-1/{step}"]


def test_a_node_is_not_ended_without_a_word(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    work = ["vision/train (8 pods)", "ads/rank (1 pod, not preemptible)"]
    refused = terminal.run("node", "terminate", "train-1", desk=(unasked := Desk(node("ready", work))))
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)
    assert all(asked.startswith("GET") for asked in unasked.asked)
    monkeypatch.setattr("berth.cli.commands.nodes.is_interactive", lambda: True)
    desk = Desk(node("ready", work))
    asked = terminal.run("node", "terminate", "train-1", desk=desk, input="n\n")
    assert "vision/train (8 pods); ads/rank (1 pod, not preemptible)" in asked.stderr
    assert (asked.exit_code, desk.asked) == (1, ["GET /api/v1/nodes/train-1"])
    said_yes = terminal.run("node", "terminate", "train-1", "--yes", desk=(done := Desk(node("lost"))))
    assert (said_yes.exit_code, done.asked) == (0, ["POST /api/v1/nodes/train-1/terminate"])


def test_nodes_tell_what_is_on_them(terminal: Terminal) -> None:
    listed = page([node("ready", ["vision/train (8 pods)"]).json()])
    assert "vision/train (8 pods)" in terminal.run("node", "list", "-o", "wide", desk=Desk(listed)).stdout
    assert "vision/train" not in terminal.run("node", "list", desk=Desk(listed)).stdout


@pytest.mark.shows("PLG-47")
def test_plugins_and_an_environment_are_typed_in_order(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "token.txt").write_text("hf_secret\n")
    (tmp_path / "pool.yaml").write_text("name: train\nenvironment: {python: '3.12', pip: [scipy]}\n")
    desk = Desk(pool())
    told = terminal.run(
        "pool", "create", "-f", str(tmp_path / "pool.yaml"), "--plugin", "torch:cuda=12.8,extras=[a]",
        "--plugin", "mps:thread_percentage=50", "--plugin", f"huggingface:token=@{tmp_path / 'token.txt'}",
        "--pip", "numpy>=2", "--index", "https://a.test/simple?x=1", "--index", "https://b.test/simple=a,b",
        "--apt", "git", "--env", "A=b=c", desk=desk,
    )  # fmt: skip
    assert told.exit_code == 0, told.stderr
    assert sent(desk) == {
        "name": "train",
        "plugins": [
            {"name": "torch", "parameters": {"cuda": "12.8", "extras": ["a"]}},
            {"name": "mps", "parameters": {"thread_percentage": 50}},
            {"name": "huggingface", "parameters": {"token": "hf_secret"}},
        ],
        "environment": {
            "python": "3.12", "pip": ["numpy>=2"], "apt": ["git"], "env": {"A": "b=c"},
            "indexes": [
                {"url": "https://a.test/simple?x=1", "packages": []},
                {"url": "https://b.test/simple", "packages": ["a", "b"]},
            ],
        },
    }  # fmt: skip


@pytest.mark.parametrize("typed", ["mps:", "mps:thread", "mps:a=1,a=2", "mps:a=[", "hf:token=@/nowhere"])
def test_a_plugin_that_cannot_be_read_is_told_in_one_line(terminal: Terminal, typed: str) -> None:
    told = terminal.run("pool", "create", "train", "--plugin", typed, desk=Desk())
    assert told.exit_code == 2
    assert told.stderr.startswith("berth: --plugin: ")
    assert told.stderr.count("\n") == 1


def test_a_node_is_described_with_how_far_it_is(terminal: Terminal) -> None:
    phases = [
        {"phase": "python", "state": "done", "seconds": 4, "message": ""},
        {"phase": "pip", "state": "failed", "seconds": 9, "message": "No matching\ndistribution \x1b[31m"},
        {"phase": "start", "state": "failed", "seconds": 2, "message": "not found", "exit_code": 127},
    ]
    seen = {
        "name": "train-1", "pool": "train", "state": "booting", "free": HAS, "capacity": HAS,
        "environment_digest": "ab" * 32, "phases": phases,
    }  # fmt: skip
    told = terminal.run("node", "describe", "train-1", desk=Desk(httpx.Response(200, json=seen)))
    assert told.exit_code == 0, told.stderr
    assert "Environment: abababababab\n" in told.stdout
    assert "  done    python                   4 s\n  failed  pip " in told.stdout
    assert "          No matching\n          distribution " in told.stdout
    assert "  failed  start                    2 s   exit code 127\n          not found\n" in told.stdout
    assert "\x1b" not in told.stdout


def test_what_a_pools_plugins_come_to_is_shown(terminal: Terminal) -> None:
    image = {
        "python": "", "pip": ["torch"], "apt": [], "env": {"A": "1"}, "secrets": ["HF_TOKEN"],
        "indexes": [{"url": "https://a.test", "packages": ["torch"]}],
    }  # fmt: skip
    told = {"digest": "ab" * 32, "image": image, "phases": ["apt", "pip"], "script": "#!/bin/sh\ntrue\n"}
    shown = terminal.run("pool", "environment", "train", desk=Desk(httpx.Response(200, json=told)))
    assert "Indexes:       https://a.test for torch\n" in shown.stdout
    assert "Secrets:       HF_TOKEN\n" in shown.stdout
    bare = terminal.run("pool", "environment", "train", "--script", desk=Desk(httpx.Response(200, json=told)))
    assert bare.stdout == "#!/bin/sh\ntrue\n"
    known = {"name": "mps", "summary": "Shares.", "parameters": {"properties": {"thread_percentage": {}}}}
    listed = terminal.run("pool", "plugins", desk=Desk(httpx.Response(200, json={"plugins": [known]})))
    assert "thread_percentage" in listed.stdout


def going(*names: str) -> list[dict[str, Any]]:
    return [{"node": name, "pods": n, "work": ["vision/train (1 pod)"] * n} for n, name in enumerate(names)]


def test_the_nodes_that_go_are_named_after_and_on_a_terminal_before(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining = {"draining": going("train-3", "train-2")}
    lines = ["  drain train-3: no workloads", "  drain train-2: vision/train (1 pod)"]
    told = terminal.run("pool", "scale", "train", "2", desk=Desk(pool(nodes_desired=2, **draining)))
    assert told.stdout.splitlines() == ["train: active, 2 nodes desired, 2 to 16", *lines]
    monkeypatch.setattr("berth.cli.commands.pools.is_interactive", lambda: True)
    would = httpx.Response(200, json={"nodes_desired": 4, "nodes": 2, **draining})
    desk = Desk(would)
    refused = terminal.run("pool", "scale", "train", "2", desk=desk)
    assert refused.exit_code != 0
    assert refused.stdout.splitlines()[:2] == lines
    assert desk.asked == ["GET /api/v1/node-pools/train/scale?nodes=2"]
    desk = Desk(pool(nodes_desired=2, **draining))
    assert terminal.run("pool", "scale", "train", "2", "--yes", desk=desk).exit_code == 0
    desk = Desk(would)
    assert terminal.run("pool", "scale", "train", "2", "--dry-run", desk=desk).stdout.splitlines() == lines
    assert desk.asked == ["GET /api/v1/node-pools/train/scale?nodes=2"]


def test_an_edit_that_drains_nodes_names_them_and_asks_on_a_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduced = pool(nodes_desired=2, nodes_max=2, draining=going("train-3", "train-2"))
    lines = ["  drain train-3: no workloads", "  drain train-2: vision/train (1 pod)"]
    words = ("pool", "edit", "train", "--nodes", "1:2")
    preview = "PATCH /api/v1/node-pools/train?dry_run=true"
    desk = Desk(reduced)
    assert terminal.run(*words, "--dry-run", desk=desk).stdout.splitlines() == lines
    assert (desk.asked, sent(desk)) == ([preview], {"nodes": [1, 2]})
    monkeypatch.setattr("berth.cli.commands.pools.is_interactive", lambda: True)
    desk = Desk(reduced)
    refused = terminal.run(*words, desk=desk, input="n\n")
    assert (refused.exit_code, refused.stdout.splitlines()[:2], desk.asked) == (1, lines, [preview])
    desk = Desk(reduced, pool(), reduced)
    edited = terminal.run(*words, desk=desk, input="y\n")
    assert edited.exit_code == 0, edited.stderr
    assert desk.asked[-1] == "PATCH /api/v1/node-pools/train"
    assert edited.stdout.splitlines()[-2:] == lines
    desk = Desk(pool(), pool())
    assert terminal.run("pool", "edit", "train", "--cpu", "8", desk=desk).exit_code == 0
    assert len(desk.asked) == 2, "nothing that makes nodes leave: no preview"
    desk = Desk(pool(), reduced)
    assert terminal.run(*words, "--yes", desk=desk).exit_code == 0
    assert preview not in desk.asked


def test_budgets_as_one_types_them(terminal: Terminal) -> None:
    desk = Desk(pool())
    window = "nodes=0,schedule=0 9 * * mon,tue,duration=8h,zone=Europe/Berlin"
    words = ("--node-consolidation", "when_empty", "--budget", "nodes=10%,reasons=empty", "--budget", window)
    assert terminal.run("pool", "edit", "train", *words, desk=desk).exit_code == 0
    assert sent(desk) == {
        "node_consolidation": "when_empty",
        "disruption_budgets": [
            {"nodes": "10%", "reasons": ["empty"]},
            {"nodes": "0", "schedule": "0 9 * * mon,tue", "duration": "8h", "zone": "Europe/Berlin"},
        ],
    }
    desk = Desk(pool())
    terminal.run("pool", "edit", "train", "--budget", "", desk=desk)
    assert sent(desk) == {"disruption_budgets": []}
    for wrong in ("10%", "nodes=1,nodes=2", "node=1"):
        told = terminal.run("pool", "edit", "train", "--budget", wrong)
        assert (told.exit_code, len(told.stderr.splitlines())) == (2, 1)
