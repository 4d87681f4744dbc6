"""Tests for the node pool and node commands."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from berth.cli.exits import InvalidInput
from berth.cli.options.pools import parse_nodes
from tests.cli.terminal import Terminal
from tests.client.stub_server import TIME, StubServer, page, problem

HAS = {"gpu": 8.0, "cpu": 64.0, "memory_mib": 1024}


def pool(**fields: Any) -> httpx.Response:
    return httpx.Response(200, headers={"ETag": '"7"'}, json={
        "name": "train", "provider": "aws", "runtime": "ray", "nodes_min": 2, "ready_threshold": None,
        "nodes_max": 16, "nodes_desired": 4, "nodes_ready": 3, "nodes_pending": 1, "nodes_draining": 0,
        "capacity": HAS, "free": HAS, "paused": False, "expires_at": None, "last_error": None,
        "gpus_per_node": 8, "gpu_model": "H100", "cpu": 64, "memory_mib": 1024, "version": 7,
        "state": "active", "created_at": TIME, "updated_at": TIME, **fields,
    })  # fmt: skip


def node(state: str, work: list[str] | None = None) -> httpx.Response:
    times = {"since": TIME, "created_at": TIME}
    return httpx.Response(200, json={"name": "train-1", "state": state, "work": work, "free": HAS, **times})


def sent_body(server: StubServer) -> Any:
    return json.loads(server.requests[-1].content)


@pytest.mark.shows("SKY-02", "SKY-10", "SKY-19")
@pytest.mark.parametrize(
    ("typed", "nodes"),
    [
        ("4", 4),
        ("2:16", [2, 16]),
        ("min=8,desired=4", {"min": 8, "desired": 4}),
        ("min=4,desired=2,max=16", {"min": 4, "desired": 2, "max": 16}),
    ],
)
def test_nodes_option_accepts_four_notations(
    terminal: Terminal, tmp_path: Path, typed: str, nodes: object
) -> None:
    server = StubServer(pool())
    result = terminal.run("pool", "create", "train", "--nodes", typed, "--memory", "2Gi", server=server)
    assert (result.exit_code, result.stdout) == (0, "train: active, 4 nodes desired, 2 to 16\n")
    assert sent_body(server) == {"name": "train", "nodes": nodes, "memory_mib": 2048}
    file = tmp_path / "pool.yaml"
    file.write_text(f"name: train\nnodes: {json.dumps(nodes)}\nlabels: {{zone: a}}\n")
    terminal.run("pool", "create", "-f", str(file), "--label", "zone=b", server=(again := StubServer(pool())))
    assert sent_body(again) == {"name": "train", "nodes": nodes, "labels": {"zone": "b"}}


def test_pool_commands_send_the_expiry_with_a_time_zone(terminal: Terminal, tmp_path: Path) -> None:
    server = StubServer(pool(), pool())
    options = ("--set", "expires_at=2031-05-01T08:00:00Z")
    result = terminal.run("pool", "edit", "train", *options, server=server)
    assert (result.exit_code, sent_body(server)) == (0, {"expires_at": "2031-05-01T08:00:00+00:00"})
    (file := tmp_path / "pool.yaml").write_text("name: train\nexpires_at: 2031-05-01T08:00:00Z\n")
    terminal.run("pool", "create", "-f", str(file), server=(again := StubServer(pool())))
    assert sent_body(again) == {"name": "train", "expires_at": "2031-05-01T08:00:00+00:00"}


def test_delete_command_prints_whether_the_pool_was_deleted(terminal: Terminal) -> None:
    server = StubServer(httpx.Response(204))
    result = terminal.run("pool", "delete", "tryout", server=server)
    assert (result.exit_code, result.stdout, server.calls) == (
        0, "tryout deleted\n", ["DELETE /api/v1/node-pools/tryout"],
    )  # fmt: skip
    rejected = terminal.run(
        "pool", "delete", "train", server=StubServer(problem(409, detail="It has a history."))
    )
    assert (rejected.exit_code, rejected.stderr) == (5, "berth: It has a history.\n")


@pytest.mark.shows("SKY-18")
@pytest.mark.parametrize("typed", ["", "four", "1:2:3", "min=4,min=5", "min=x", "min", "2-16", "1:"])
def test_invalid_nodes_option_prints_a_one_line_error(terminal: Terminal, typed: str) -> None:
    with pytest.raises(InvalidInput, match="--nodes: is not a valid number of nodes; received '"):
        parse_nodes(typed)
    result = terminal.run("pool", "create", "train", "--nodes", typed)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


@pytest.mark.shows("SKY-18")
def test_error_names_the_field_with_an_invalid_value(terminal: Terminal) -> None:
    fault = {"path": "nodes.max", "message": "is below nodes.min", "received": "3", "allowed": "at least 4"}
    result = terminal.run(
        "pool", "create", "x", "--nodes", "4:3", server=StubServer(problem(422, errors=[fault]))
    )
    assert result.exit_code == 2
    assert result.stderr.startswith("berth: nodes.max: is below nodes.min")
    assert len(result.stderr.splitlines()) == 1


def test_edit_command_sends_the_version_that_was_read(terminal: Terminal) -> None:
    server = StubServer(pool())
    result = terminal.run(
        "pool", "edit", "train", "--set", "taints=[{key: a}]", "--price", "2.5", server=server
    )
    assert result.exit_code == 0
    assert server.requests[-1].headers["If-Match"] == '"7"'
    assert sent_body(server) == {"taints": [{"key": "a"}], "price_per_gpu_hour": 2.5}
    assert terminal.run("pool", "edit", "train").exit_code == 2
    assert terminal.run("pool", "edit", "--nodes", "4").exit_code == 2


@pytest.mark.parametrize(
    ("words", "sent_request", "body"),
    [
        (("scale", "train", "3"), "POST /api/v1/node-pools/train/scale", {"nodes": 3}),
        (("drain", "train", "--reason", "move"), "POST /api/v1/node-pools/train/drain", {"reason": "move"}),
        (("pause", "train"), "POST /api/v1/node-pools/train/pause", None),
        (("resume", "train"), "POST /api/v1/node-pools/train/resume", None),
        (("retry", "train"), "POST /api/v1/node-pools/train/retry", None),
    ],
)
def test_pool_action_prints_the_resulting_state(
    terminal: Terminal, words: tuple[str, ...], sent_request: str, body: object
) -> None:
    server = StubServer(pool(paused=True, state="paused"))
    result = terminal.run("pool", *words, server=server)
    assert result.stdout == "train: paused, 4 nodes desired, 2 to 16\n"
    assert server.calls == [sent_request]
    assert body is None or sent_body(server) == body
    assert terminal.run("pool", *words, server=StubServer(problem(409, detail="No."))).exit_code == 5
    assert terminal.run("pool", *words, server=StubServer(problem(404, detail="None."))).exit_code == 4


def test_describe_command_prints_pool_details(terminal: Terminal) -> None:
    spent = {"node_hours": 1.0, "gpu_hours": 8.0, "cost": 20.0}
    cost = {"price_per_gpu_hour": 2.5, "per_hour": 60.0, "last_24_hours": spent, "last_30_days": spent}
    levels = [{"gpus": 0, "nodes": 1, "replicas": 0}, {"gpus": 2, "nodes": 3, "replicas": 3}]
    pieces = {"nodes": 4, "free_gpus": 6, "free_in_parts": 0, "levels": levels}
    parts = [httpx.Response(200, json=cost), httpx.Response(200, json=pieces)]
    failed = {"boot_failures": 5, "boot_failure_limit": 5, "provisioning_stopped": True}
    answers = (pool(last_error="quota: no more", state="failing", **failed), *parts)
    result = terminal.run("pool", "describe", "train", server=StubServer(*answers)).stdout
    for part in ("3 ready, 1 booting, 0 draining", "3 x 2 GPUs", "60 per hour now",
                 "State:          failing, 4 nodes desired", "Last error:     quota: no more",
                 "Boots:          5 of 5 failed in a row; provisioning stopped"):  # fmt: skip
        assert part in result
    whole = json.loads(
        terminal.run("pool", "describe", "train", "-o", "json", server=StubServer(*answers)).stdout
    )
    assert (whole["name"], whole["cost"], whole["fragmentation"]) == ("train", cost, pieces)


def test_history_is_printed_oldest_first(terminal: Terminal) -> None:
    events = [
        {"id": 2, "at": "2026-01-01T00:00:09Z", "kind": "error", "reason": "ordering 2 nodes: quota"},
        {"id": 1, "at": "2026-01-01T00:00:00Z", "kind": "autoscale", "before": 0, "after": 2,
         "reason": "4 queued"},
    ]  # fmt: skip
    server = StubServer(page(events))
    lines = terminal.run("pool", "history", "train", "--limit", "2", server=server).stdout.splitlines()
    assert "0 -> 2" in lines[1]
    assert "ordering 2 nodes: quota" in lines[2]
    assert "limit=2" in server.calls[0]


@pytest.mark.parametrize("step", ["cordon", "drain", "uncordon"])
def test_node_action_prints_the_resulting_state(terminal: Terminal, step: str) -> None:
    server = StubServer(node("cordoned"))
    result = terminal.run("node", step, "train-1", server=server)
    assert (result.exit_code, result.stdout) == (0, "train-1 is cordoned\n")
    assert server.calls == [f"POST /api/v1/nodes/train-1/{step}"]


def test_terminate_command_asks_for_confirmation_if_the_node_has_workloads(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = ["vision/train (8 pods)", "ads/rank (1 pod, non-preemptible)"]
    rejected = terminal.run(
        "node", "terminate", "train-1", server=(unasked := StubServer(node("ready", work)))
    )
    assert (rejected.exit_code, len(rejected.stderr.splitlines())) == (2, 1)
    assert all(request.startswith("GET") for request in unasked.calls)
    monkeypatch.setattr("berth.cli.commands.infrastructure.nodes.is_interactive", lambda: True)
    server = StubServer(node("ready", work))
    declined = terminal.run("node", "terminate", "train-1", server=server, input="n\n")
    assert "vision/train (8 pods); ads/rank (1 pod, non-preemptible)" in declined.stderr
    assert (declined.exit_code, server.calls) == (1, ["GET /api/v1/nodes/train-1"])
    confirmed = terminal.run(
        "node", "terminate", "train-1", "--yes", server=(done := StubServer(node("lost")))
    )
    assert (confirmed.exit_code, done.calls) == (0, ["POST /api/v1/nodes/train-1/terminate"])


def test_wide_node_list_includes_workloads(terminal: Terminal) -> None:
    listed = page([node("ready", ["vision/train (8 pods)"]).json()])
    assert (
        "vision/train (8 pods)"
        in terminal.run("node", "list", "-o", "wide", server=StubServer(listed)).stdout
    )
    assert "vision/train" not in terminal.run("node", "list", server=StubServer(listed)).stdout


@pytest.mark.shows("PLG-47")
def test_plugin_and_environment_options_keep_their_order(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "token.txt").write_text("hf_secret\n")
    (tmp_path / "pool.yaml").write_text("name: train\nenvironment: {python: '3.12', pip: [scipy]}\n")
    server = StubServer(pool())
    result = terminal.run(
        "pool", "create", "-f", str(tmp_path / "pool.yaml"), "--plugin", "torch:cuda=12.8,extras=[a]",
        "--plugin", "mps:thread_percentage=50", "--plugin", f"huggingface:token=@{tmp_path / 'token.txt'}",
        "--pip", "numpy>=2", "--index", "https://a.test/simple?x=1", "--index", "https://b.test/simple=a,b",
        "--apt", "git", "--env", "A=b=c", server=server,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert sent_body(server) == {
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
def test_invalid_plugin_option_prints_a_one_line_error(terminal: Terminal, typed: str) -> None:
    result = terminal.run("pool", "create", "train", "--plugin", typed, server=StubServer())
    assert result.exit_code == 2
    assert result.stderr.startswith("berth: --plugin: ")
    assert result.stderr.count("\n") == 1


def test_pool_environment_shows_what_plugins_install(terminal: Terminal) -> None:
    image = {
        "python": "", "pip": ["torch"], "apt": [], "env": {"A": "1"}, "secrets": ["HF_TOKEN"],
        "indexes": [{"url": "https://a.test", "packages": ["torch"]}],
    }  # fmt: skip
    environment = {
        "digest": "ab" * 32,
        "image": image,
        "phases": ["apt", "pip"],
        "script": "#!/bin/sh\ntrue\n",
        "created_at": TIME,
    }
    shown = terminal.run(
        "pool", "environment", "train", server=StubServer(httpx.Response(200, json=environment))
    )
    assert "Indexes:       https://a.test for torch\n" in shown.stdout
    assert "Secrets:       HF_TOKEN\n" in shown.stdout
    bare = terminal.run(
        "pool", "environment", "train", "--script", server=StubServer(httpx.Response(200, json=environment))
    )
    assert bare.stdout == "#!/bin/sh\ntrue\n"
    plugin = {"name": "mps", "summary": "Shares.", "parameters": {"properties": {"thread_percentage": {}}}}
    listed = terminal.run(
        "pool", "plugins", server=StubServer(httpx.Response(200, json={"plugins": [plugin]}))
    )
    assert "thread_percentage" in listed.stdout


def draining_nodes(*names: str) -> list[dict[str, Any]]:
    return [{"node": name, "pods": n, "work": ["vision/train (1 pod)"] * n} for n, name in enumerate(names)]


def test_scale_command_lists_nodes_to_drain_and_asks_for_confirmation_on_a_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    draining = {"draining": draining_nodes("train-3", "train-2")}
    lines = ["  drain train-3: no workloads", "  drain train-2: vision/train (1 pod)"]
    result = terminal.run("pool", "scale", "train", "2", server=StubServer(pool(nodes_desired=2, **draining)))
    assert result.stdout.splitlines() == ["train: active, 2 nodes desired, 2 to 16", *lines]
    monkeypatch.setattr("berth.cli.commands.infrastructure.pools.is_interactive", lambda: True)
    would = httpx.Response(200, json={"nodes_desired": 4, "nodes": 2, **draining})
    server = StubServer(would)
    rejected = terminal.run("pool", "scale", "train", "2", server=server)
    assert rejected.exit_code != 0
    assert rejected.stdout.splitlines()[:2] == lines
    assert server.calls == ["GET /api/v1/node-pools/train/scale?nodes=2"]
    server = StubServer(pool(nodes_desired=2, **draining))
    assert terminal.run("pool", "scale", "train", "2", "--yes", server=server).exit_code == 0
    server = StubServer(would)
    assert (
        terminal.run("pool", "scale", "train", "2", "--dry-run", server=server).stdout.splitlines() == lines
    )
    assert server.calls == ["GET /api/v1/node-pools/train/scale?nodes=2"]


def test_edit_command_lists_nodes_to_drain_and_asks_for_confirmation_on_a_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    reduced = pool(nodes_desired=2, nodes_max=2, draining=draining_nodes("train-3", "train-2"))
    lines = ["  drain train-3: no workloads", "  drain train-2: vision/train (1 pod)"]
    words = ("pool", "edit", "train", "--nodes", "1:2")
    preview = "PATCH /api/v1/node-pools/train?dry_run=true"
    server = StubServer(reduced)
    assert terminal.run(*words, "--dry-run", server=server).stdout.splitlines() == lines
    assert (server.calls, sent_body(server)) == ([preview], {"nodes": [1, 2]})
    monkeypatch.setattr("berth.cli.commands.infrastructure.pools.is_interactive", lambda: True)
    server = StubServer(reduced)
    rejected = terminal.run(*words, server=server, input="n\n")
    assert (rejected.exit_code, rejected.stdout.splitlines()[:2], server.calls) == (1, lines, [preview])
    server = StubServer(reduced, pool(), reduced)
    edited = terminal.run(*words, server=server, input="y\n")
    assert edited.exit_code == 0, edited.stderr
    assert server.calls[-1] == "PATCH /api/v1/node-pools/train"
    assert edited.stdout.splitlines()[-2:] == lines
    server = StubServer(pool(), pool())
    assert terminal.run("pool", "edit", "train", "--cpu", "8", server=server).exit_code == 0
    assert len(server.calls) == 2, "nothing that makes nodes leave: no preview"
    server = StubServer(pool(), reduced)
    assert terminal.run(*words, "--yes", server=server).exit_code == 0
    assert preview not in server.calls


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        (("--image-policy", "forbid"), {"mode": "forbid", "patterns": []}),
        (
            ("--image-policy", "require", "--image-pattern", "ghcr.io/*", "--image-pattern", "quay.io/*"),
            {"mode": "require", "patterns": ["ghcr.io/*", "quay.io/*"]},
        ),
        (("--image-pattern", "ghcr.io/*"), {"patterns": ["ghcr.io/*"]}),
    ],
)
def test_image_options_are_sent_as_one_policy(
    terminal: Terminal, words: tuple[str, ...], policy: object
) -> None:
    server = StubServer(pool())
    assert terminal.run("pool", "edit", "train", *words, server=server).exit_code == 0
    assert sent_body(server) == {"image_policy": policy}


def test_default_limit_options_replace_all_default_limits(terminal: Terminal) -> None:
    limits = {"memory_from_request": False, "memory_mib": 4096, "cpu_from_request": True, "cpu": None}
    server = StubServer(pool(default_limits=limits))
    words = ("--default-limit", "memory_from_request=false", "--default-limit", "memory_mib=4096")
    assert terminal.run("pool", "edit", "train", *words, server=server).exit_code == 0
    assert sent_body(server) == {"default_limits": {"memory_from_request": False, "memory_mib": 4096}}
    server = StubServer(pool())
    terminal.run("pool", "edit", "train", "--default-limit", "", server=server)
    assert sent_body(server) == {"default_limits": {}}
    server = StubServer(pool())
    terminal.run("pool", "edit", "train", "--workspace-limit", "1Gi", server=server)
    assert sent_body(server) == {"workspace_limit_mib": 1024}
    wrong = terminal.run("pool", "edit", "train", "--default-limit", "memory")
    assert (wrong.exit_code, len(wrong.stderr.splitlines())) == (2, 1)


def test_budget_options_are_sent_as_disruption_budgets(terminal: Terminal) -> None:
    server = StubServer(pool())
    window = "nodes=0,schedule=0 9 * * mon,tue,duration=8h,zone=Europe/Berlin"
    words = ("--node-consolidation", "when_empty", "--budget", "nodes=10%,reasons=empty", "--budget", window)
    assert terminal.run("pool", "edit", "train", *words, server=server).exit_code == 0
    assert sent_body(server) == {
        "node_consolidation": "when_empty",
        "disruption_budgets": [
            {"nodes": "10%", "reasons": ["empty"]},
            {"nodes": "0", "schedule": "0 9 * * mon,tue", "duration": "8h", "zone": "Europe/Berlin"},
        ],
    }
    server = StubServer(pool())
    terminal.run("pool", "edit", "train", "--budget", "", server=server)
    assert sent_body(server) == {"disruption_budgets": []}
    for wrong in ("10%", "nodes=1,nodes=2", "node=1"):
        result = terminal.run("pool", "edit", "train", "--budget", wrong)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


def test_doctor_lists_pool_problems_and_exits_with_1_for_an_error(terminal: Terminal) -> None:
    error = {"severity": "error", "name": "failed boots", "finding": "5 boots failed.", "remedy": "Run it."}
    note = {"severity": "note", "name": "no nodes", "finding": "The pool has no nodes.", "remedy": ""}

    def answer(*findings: dict[str, str]) -> StubServer:
        return StubServer(httpx.Response(200, json={"pool": "train", "findings": list(findings)}))

    result = terminal.run("doctor", "train", server=answer(error, note))
    assert (result.exit_code, result.stdout.splitlines()) == (1, [
        "error    failed boots   5 boots failed.",
        "                        Run it.",
        "note     no nodes       The pool has no nodes.",
    ])  # fmt: skip
    assert terminal.run("doctor", "train", server=answer(note)).exit_code == 0
    renamed = {**note, "name": "pending workloads"}
    lines = terminal.run("doctor", "train", server=answer(note, renamed)).stdout.splitlines()
    assert [line.index("The pool") for line in lines] == [28, 28]
    healthy = terminal.run("doctor", "train", server=answer())
    assert (healthy.exit_code, healthy.stderr) == (0, "No problems found in pool train.\n")
    as_json = terminal.run("doctor", "train", "-o", "json", server=answer(error))
    assert (as_json.exit_code, json.loads(as_json.stdout)) == (1, [error])
