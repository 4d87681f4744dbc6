"""Tests for the department, project, user and notification commands and other admin lists."""

import csv
import io
import json
from typing import Any

import httpx
import pytest
import yaml

from projects.models import Delivery
from tests import factories
from tests.cast import Cast
from tests.cli.conftest import Berth, token_of
from tests.cli.terminal import Terminal
from tests.client.stub_server import StubServer

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def as_alice(cast: Cast) -> dict[str, str]:
    return {"BERTH_TOKEN": token_of(cast.alice)}


@pytest.mark.heavy
def test_departments_projects_and_members_are_created_edited_and_deleted(
    berth: Berth, as_alice: dict[str, str]
) -> None:
    def run(*words: str, typed: str = "") -> str:
        result = berth(*words, typed=typed, **as_alice)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert run("department", "create", "bio", "--title", "Biology", "--rank", "3") == "bio created\n"
    assert run("project", "create", "cells", "--department", "bio") == "Project cells created in bio.\n"
    assert run("project", "edit", "cells", "--preempt-after", "10m", "--rank", "2") == "cells changed\n"
    stored = json.loads(run("project", "describe", "cells", "-o", "json"))
    assert (stored["rank"], stored["preempt_min_runtime"]) == (2, 600)
    run("project", "edit", "cells", "--preempt-after", "default")
    assert json.loads(run("project", "describe", "cells", "-o", "json"))["preempt_min_runtime"] is None

    assert (
        run("user", "create", "hal", "--password-stdin", typed="a long enough password\n")
        == "User hal created.\n"
    )
    assert "hal" in run("user", "list", "--search", "ha")
    assert run("member", "add", "hal", "--role", "member", "--project", "cells") == "hal is member of cells\n"
    assert "hal (member)" in run("project", "describe", "cells")
    assert "Projects       cells\n" in run("department", "describe", "bio")
    assert [row["user"] for row in json.loads(run("member", "list", "--project", "cells", "-o", "json"))] == [
        "hal"
    ]
    assert run("member", "remove", "hal", "--project", "cells") == "Role member of cells revoked from hal.\n"

    assert berth("department", "delete", "bio", **as_alice).returncode == 5, "it has a project"
    assert run("project", "delete", "cells") == "cells deleted\n"
    assert run("department", "delete", "bio") == "bio deleted\n"
    changes = [f"{row['action']} {row['object_name']}" for row in json.loads(run("audit", "-o", "json"))]
    assert "delete bio" in changes
    assert "title Biology" in run("audit", "--name", "bio", "-o", "wide")


def test_ambiguous_or_missing_role_is_not_removed(berth: Berth, cast: Cast, as_alice: dict[str, str]) -> None:
    berth("member", "add", "dave", "--role", "viewer", "--project", "ads", **as_alice)
    several = berth("member", "remove", "dave", **as_alice)
    assert several.returncode == 2
    assert several.stderr.startswith("berth: dave has several roles (member of vision, viewer of ads)")
    without_role = berth("member", "remove", "grace", "--project", "vision", **as_alice)
    assert without_role.stderr == (
        "berth: grace does not have this role. List roles with `berth member list --user grace`.\n"
    )
    assert berth("project", "edit", "vision", **as_alice).returncode == 2
    dave = {"BERTH_TOKEN": token_of(cast.dave)}
    assert berth("department", "create", "mine", **dave).returncode == 1
    assert berth("project", "describe", "ads", "-o", "json", BERTH_TOKEN=token_of(cast.carol)).returncode == 4


def test_health_command_sets_the_exit_code(berth: Berth, cast: Cast, as_alice: dict[str, str]) -> None:
    without_leader = berth("health", **as_alice)
    assert (without_leader.returncode, without_leader.stderr) == (
        1,
        "berth: one_leader: no scheduler holds the lease.\n",
    )
    assert without_leader.stdout.startswith("Leader      none\n")
    factories.create_scheduler_lease()
    with_leader = berth("health", **as_alice)
    assert with_leader.returncode == 0, with_leader.stdout + with_leader.stderr
    assert "epoch" in with_leader.stdout
    assert json.loads(berth("health", "-o", "json", **as_alice).stdout)["leader"]["alive"] is True


def test_top_command_shows_pools_nodes_and_workloads(
    berth: Berth, cast: Cast, as_alice: dict[str, str]
) -> None:
    node = factories.node(cast.pool)
    running = factories.workload(cast.vision, name="held", phase="running")
    factories.place(running, node, [0, 1])
    factories.workload(cast.ads, name="waits")
    result = berth("top", "--once", **as_alice)
    assert result.returncode == 0, result.stderr
    head, *rest = result.stdout.splitlines()
    assert head == "2 of 2 GPUs allocated (100%); workloads: 1 running, 1 pending"
    for part in ("Pools", "Nodes", "Workloads", "vision/held", "ads/waits", node.name, "local"):
        assert any(part in line for line in rest), part
    cluster: Any = json.loads(berth("top", "--once", "-o", "json", **as_alice).stdout)
    assert {row["workload"]["name"] for row in cluster["workloads"]} == {"held", "waits"}
    of_project = json.loads(berth("top", "--project", "ads", "-o", "json", **as_alice).stdout)
    assert [row["workload"]["name"] for row in of_project["workloads"]] == ["waits"]
    assert berth("top", "--sort", "luck", **as_alice).returncode == 2
    mine = json.loads(berth("top", "-o", "json", BERTH_TOKEN=token_of(cast.grace)).stdout)
    assert [row["workload"]["name"] for row in mine["workloads"]] == ["waits"], (
        "other projects' workloads are hidden"
    )
    assert '"vision' not in json.dumps(mine)


AS_CSV = ("list", "queue local", "evictions --matrix", "quota show", "usage report", "top", "whoami")
LISTS = (
    "list", "list --all", "queue local", "share", "evictions", "evictions --matrix", "events", "cycles",
    "audit", "quota show", "quota history", "pool list", "pool plugins", "pool history local", "node list",
    "service list", "budget list", "member list", "user list", "department list", "project list",
    "subscription list", "token list", "context list", "usage report", "machine list local",
    "machine token list local", "top", "health", "whoami", "pool describe local", "describe vision/waits",
    "why vision/waits", "project describe vision", "node describe local-0",
)  # fmt: skip


@pytest.mark.heavy
def test_every_list_and_object_can_be_printed_as_json_yaml_and_csv(
    berth: Berth, cast: Cast, as_alice: dict[str, str]
) -> None:
    factories.create_scheduler_lease()
    node = factories.node(cast.pool, 0)
    running = factories.workload(cast.vision, name="held", phase="running")
    factories.place(running, node, [0, 1])
    pending = factories.workload(cast.vision, name="waits")
    factories.eviction(running, pending, cast.pool)
    factories.quota(cast.vision, cast.pool, 2)
    outputs = {}
    for words in LISTS:
        result = berth(*words.split(), "-o", "json", **as_alice)
        assert result.returncode == 0 or words == "health", (words, result)
        outputs[words] = json.loads(result.stdout)
    for words in ("list", "node describe local-0"):
        assert yaml.safe_load(berth(*words.split(), "-o", "yaml", **as_alice).stdout) == outputs[words]
    for words in AS_CSV:
        head, *rows = csv.reader(io.StringIO(berth(*words.split(), "-o", "csv", **as_alice).stdout))
        assert rows, words
        assert {len(row) for row in rows} == {len(head)}, words
        assert not isinstance(outputs[words], list) or len(rows) == len(outputs[words]), words


def test_subscription_deliveries_are_listed(berth: Berth, cast: Cast, as_alice: dict[str, str]) -> None:
    rejected = berth("subscription", "create", "http://10.1.2.3/hook", **as_alice)
    assert rejected.returncode == 2
    assert "10.1.2.3 is not a public address" in rejected.stderr
    assert "BERTH_NOTIFY_NETWORKS" in rejected.stderr
    made = json.loads(berth("subscription", "create", "alice@example.org", "-o", "json", **as_alice).stdout)
    words = ("subscription", "deliveries", str(made["id"]))
    assert berth(*words, **as_alice).stderr == "No deliveries yet.\n"
    dave = {"BERTH_TOKEN": token_of(cast.dave)}
    assert berth("subscription", "test", str(made["id"]), **dave).returncode == 4
    assert not Delivery.objects.exists()
    for number in range(3):
        Delivery.objects.create(
            subscription_id=made["id"], kind="failed", to="alice@example.org", channel="mail", content={},
            next_attempt_at=factories.ago(), attempts=number + 1, last_error=f"answer {number}",
        )  # fmt: skip
    deliveries = json.loads(berth(*words, "--limit", "2", "-o", "json", **as_alice).stdout)
    assert [delivery["last_error"] for delivery in deliveries] == ["answer 2", "answer 1"]
    assert "failed" in berth(*words, **as_alice).stdout
    assert berth(*words, **dave).returncode == 4, "only the owner sees the deliveries"


def test_failed_delivery_is_resent(
    berth: Berth, cast: Cast, as_alice: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("berth.cli.commands.accounts.subscriptions.ATTEMPT_SECONDS", 0)  # no task runs here
    made = json.loads(berth("subscription", "create", "alice@example.org", "-o", "json", **as_alice).stdout)
    failed = Delivery.objects.create(
        subscription_id=made["id"], kind="failed", to="alice@example.org", channel="mail", content={},
        state="failed", attempts=8, last_error="no mail server", next_attempt_at=factories.ago(),
        ended_at=factories.ago(),
    )  # fmt: skip
    listed = berth("subscription", "deliveries", str(made["id"]), **as_alice).stdout
    assert listed.splitlines()[1].split()[0] == str(failed.pk)
    words = ("subscription", "resend", str(made["id"]), str(failed.pk))
    sent = berth(*words, "-o", "json", **as_alice)
    assert (sent.returncode, json.loads(sent.stdout)["state"]) == (0, "pending")
    again = berth(*words, **as_alice)
    assert (again.returncode, "It is already in progress" in again.stderr) == (5, True)
    unknown = berth(*words[:3], "999999", **as_alice)
    assert (unknown.returncode, "has no delivery with the ID 999999" in unknown.stderr) == (4, True)
    assert berth(*words, BERTH_TOKEN=token_of(cast.dave)).returncode == 4


def test_resend_command_waits_for_the_first_attempt_and_fails_if_the_attempt_fails(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    row = {
        "id": 57, "at": "2026-01-01T00:00:00Z", "kind": "failed", "to": "a@example.org", "channel": "mail",
        "attempts": 0, "next_attempt_at": "2026-01-01T00:00:00Z", "last_error": "", "ended_at": None,
    }  # fmt: skip
    for end, code in (("delivered", 0), ("failed", 1)):
        states = ("pending", "pending", end)
        server = StubServer(*(httpx.Response(200, json={**row, "state": state}) for state in states))
        done = terminal.run("subscription", "resend", "3", "57", server=server)
        assert (done.exit_code, end in done.stdout) == (code, True)
        path = "/api/v1/subscriptions/3/deliveries/57"
        assert server.calls == [f"POST {path}/resend", f"GET {path}", f"GET {path}"]


def test_shell_completion_offers_names_from_the_server(
    berth: Berth, cast: Cast, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from berth.cli.options import arguments as names

    for name, value in {**environment, "BERTH_TOKEN": token_of(cast.carol)}.items():
        monkeypatch.setenv(name, value)
    factories.workload(cast.vision, name="train-1")
    factories.workload(cast.ads, name="train-2")
    assert names.workload_names("tr") == ["train-1"], "only what carol sees"
    assert names.workload_names("vision/") == ["vision/train-1"]
    assert names.pool_names("") == ["local"]
    assert names.project_names("v") == ["vision"]
    assert names.owner_names("") == ["research", "vision"]
    monkeypatch.setenv("BERTH_TOKEN", "berth_wrong")
    assert names.pool_names("") == []
    monkeypatch.setenv("BERTH_URL", "nonsense")
    assert names.workload_names("") == []
