"""An organisation is set up from the command line."""

import csv
import io
import json
from typing import Any

import pytest
import yaml

from projects.models import Delivery
from tests import factories
from tests.cast import Cast
from tests.cli.conftest import Berth, token_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def as_alice(cast: Cast) -> dict[str, str]:
    return {"BERTH_TOKEN": token_of(cast.alice)}


def test_a_department_a_project_and_its_people_are_made_changed_and_removed(
    berth: Berth, as_alice: dict[str, str]
) -> None:
    def done(*words: str, typed: str = "") -> str:
        told = berth(*words, typed=typed, **as_alice)
        assert told.returncode == 0, told.stderr
        return told.stdout

    assert done("department", "create", "bio", "--title", "Biology", "--rank", "3") == "bio created\n"
    assert done("project", "create", "cells", "--department", "bio") == "Project cells created in bio.\n"
    assert done("project", "edit", "cells", "--preempt-after", "10m", "--rank", "2") == "cells changed\n"
    stored = json.loads(done("project", "describe", "cells", "-o", "json"))
    assert (stored["rank"], stored["preempt_min_runtime"]) == (2, 600)
    done("project", "edit", "cells", "--preempt-after", "default")
    assert json.loads(done("project", "describe", "cells", "-o", "json"))["preempt_min_runtime"] is None

    assert (
        done("user", "create", "hal", "--password-stdin", typed="a long enough password\n")
        == "User hal created.\n"
    )
    assert "hal" in done("user", "list", "--search", "ha")
    assert (
        done("member", "add", "hal", "--role", "member", "--project", "cells") == "hal is member of cells\n"
    )
    assert "hal (member)" in done("project", "describe", "cells")
    told = done("department", "describe", "bio")
    assert "Projects       cells\n" in told
    assert [
        row["user"] for row in json.loads(done("member", "list", "--project", "cells", "-o", "json"))
    ] == ["hal"]
    assert done("member", "remove", "hal", "--project", "cells") == "Role member of cells revoked from hal.\n"

    assert berth("department", "delete", "bio", **as_alice).returncode == 5, "it has a project"
    assert done("project", "delete", "cells") == "cells deleted\n"
    assert done("department", "delete", "bio") == "bio deleted\n"
    changes = [f"{row['action']} {row['object_name']}" for row in json.loads(done("audit", "-o", "json"))]
    assert "delete bio" in changes
    assert "title Biology" in done("audit", "--name", "bio", "-o", "wide")


def test_a_role_that_is_not_clear_or_not_there_is_asked_back(
    berth: Berth, cast: Cast, as_alice: dict[str, str]
) -> None:
    berth("member", "add", "dave", "--role", "viewer", "--project", "ads", **as_alice)
    several = berth("member", "remove", "dave", **as_alice)
    assert several.returncode == 2
    assert several.stderr.startswith("berth: dave has several roles (member of vision, viewer of ads)")
    nobody = berth("member", "remove", "grace", "--project", "vision", **as_alice)
    assert nobody.stderr == "berth: grace has no such role; see berth member list --user grace\n"
    assert berth("project", "edit", "vision", **as_alice).returncode == 2
    dave = {"BERTH_TOKEN": token_of(cast.dave)}
    assert berth("department", "create", "mine", **dave).returncode == 1
    assert berth("project", "describe", "ads", "-o", "json", BERTH_TOKEN=token_of(cast.carol)).returncode == 4


def test_the_schedulers_health_is_told_with_an_exit_code(
    berth: Berth, cast: Cast, as_alice: dict[str, str]
) -> None:
    nobody = berth("health", **as_alice)
    assert (nobody.returncode, nobody.stderr) == (1, "berth: one_leader: nobody leads\n")
    assert nobody.stdout.startswith("Leader      none\n")
    factories.scheduler_leads()
    well = berth("health", **as_alice)
    assert well.returncode == 0, well.stdout + well.stderr
    assert "epoch" in well.stdout
    assert json.loads(berth("health", "-o", "json", **as_alice).stdout)["leader"]["alive"] is True


def test_the_cluster_is_seen_at_one_look(berth: Berth, cast: Cast, as_alice: dict[str, str]) -> None:
    node = factories.node(cast.pool)
    held = factories.workload(cast.vision, name="held", phase="running")
    factories.place(held, node, [0, 1])
    factories.workload(cast.ads, name="waits")
    told = berth("top", "--once", **as_alice)
    assert told.returncode == 0, told.stderr
    head, *rest = told.stdout.splitlines()
    assert head == "2 of 2 GPUs allocated (100%); workloads: 1 running, 1 pending"
    for part in ("Pools", "Nodes", "Workloads", "vision/held", "ads/waits", node.name, "local"):
        assert any(part in line for line in rest), part
    seen: Any = json.loads(berth("top", "--once", "-o", "json", **as_alice).stdout)
    assert {row["workload"]["name"] for row in seen["workloads"]} == {"held", "waits"}
    only = json.loads(berth("top", "--project", "ads", "-o", "json", **as_alice).stdout)
    assert [row["workload"]["name"] for row in only["workloads"]] == ["waits"]
    assert berth("top", "--sort", "luck", **as_alice).returncode == 2
    mine = json.loads(berth("top", "-o", "json", BERTH_TOKEN=token_of(cast.grace)).stdout)
    assert [row["workload"]["name"] for row in mine["workloads"]] == ["waits"], "what others run is theirs"
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


def test_every_list_and_every_thing_is_there_as_json_yaml_and_csv(
    berth: Berth, cast: Cast, as_alice: dict[str, str]
) -> None:
    factories.scheduler_leads()
    node = factories.node(cast.pool, 0)
    held = factories.workload(cast.vision, name="held", phase="running")
    factories.place(held, node, [0, 1])
    waits = factories.workload(cast.vision, name="waits")
    factories.eviction(held, waits, cast.pool)
    factories.quota(cast.vision, cast.pool, 2)
    found = {}
    for words in LISTS:
        told = berth(*words.split(), "-o", "json", **as_alice)
        assert told.returncode == 0 or words == "health", (words, told)
        found[words] = json.loads(told.stdout)
    for words in ("list", "node describe local-0"):
        assert yaml.safe_load(berth(*words.split(), "-o", "yaml", **as_alice).stdout) == found[words]
    for words in AS_CSV:
        head, *rows = csv.reader(io.StringIO(berth(*words.split(), "-o", "csv", **as_alice).stdout))
        assert rows, words
        assert {len(row) for row in rows} == {len(head)}, words
        assert not isinstance(found[words], list) or len(rows) == len(found[words]), words


def test_what_was_told_and_what_came_of_it_is_listed(
    berth: Berth, cast: Cast, as_alice: dict[str, str]
) -> None:
    refused = berth("subscription", "create", "http://10.1.2.3/hook", **as_alice)
    assert refused.returncode == 2
    assert "10.1.2.3 resolves to 10.1.2.3, which is not a public address" in refused.stderr
    assert "BERTH_NOTIFY_NETWORKS" in refused.stderr
    made = json.loads(berth("subscription", "create", "alice@example.org", "-o", "json", **as_alice).stdout)
    words = ("subscription", "deliveries", str(made["id"]))
    assert berth(*words, **as_alice).stderr == "No deliveries yet.\n"
    for number in range(3):
        Delivery.objects.create(
            subscription_id=made["id"], kind="failed", to="alice@example.org", channel="mail", content={},
            due_at=factories.ago(), tries=number + 1, last_error=f"answer {number}",
        )  # fmt: skip
    found = json.loads(berth(*words, "--limit", "2", "-o", "json", **as_alice).stdout)
    assert [each["last_error"] for each in found] == ["answer 2", "answer 1"]
    assert "failed" in berth(*words, **as_alice).stdout
    assert berth(*words, BERTH_TOKEN=token_of(cast.dave)).returncode == 4, "they are hers"


def test_the_shell_completes_what_the_server_has(
    berth: Berth, cast: Cast, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from berth.cli import arguments as names

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
