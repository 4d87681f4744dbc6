"""Tests for submitting, listing and controlling workloads over REST."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pools.models import NodePool
from pools.runtimes import capabilities
from pools.runtimes.capabilities import Capabilities
from projects.models import Phase, Workload
from projects.services import workloads
from tests import factories as make
from tests.api.conftest import Caller
from tests.cast import Cast, training

MANIFEST = Path(__file__).parents[3] / "examples" / "training-job" / "training_job.yaml"


def test_member_submits_and_reads_a_workload(dave: Caller) -> None:
    sent = dave.post("workloads", training(project="vision", labels={"team": "a"}, priority="high"))
    assert sent.status_code == 201
    answer = sent.json()
    assert sent["Location"] == f"/api/v1/workloads/{answer['id']}"
    assert (answer["phase"], answer["project"], answer["department"]) == ("pending", "vision", "research")
    assert (answer["priority"], answer["submitted_by"], answer["labels"]) == (125, "dave", {"team": "a"})
    assert answer["gpus"] == {"requested": 2.0, "now": 0.0}
    assert answer["pods"] == {"running": 0, "maximum": 2}
    assert answer["spec"]["roles"] == [{"replicas": 2, "gpu": 1}]
    assert {**dave.get(f"workloads/{answer['id']}").json(), "warnings": answer["warnings"]} == answer


def test_workload_is_submitted_as_yaml(dave: Caller) -> None:
    text = yaml.safe_dump(training(project="vision"))
    sent = dave("POST", "workloads", ("application/yaml", text))
    assert sent.status_code == 201
    assert sent.json()["spec"]["command"] == "true"


@pytest.mark.shows("PAD-10")
def test_training_job_manifest_is_accepted_as_written(dave: Caller) -> None:
    # The user has only one project, so the manifest need not name a project.
    sent = dave("POST", "workloads", ("application/yaml", MANIFEST.read_text()))
    assert sent.status_code == 201, sent.json()
    answer = sent.json()
    assert (answer["name"], answer["project"], answer["kind"]) == ("digits", "vision", "elastic")
    roles = {role["name"]: role for role in answer["spec"]["roles"]}
    assert (roles["trainer"]["min"], roles["trainer"]["max"], roles["trainer"]["gpu"]) == (3, 6, 1)
    assert [roles[name]["idle"] for name in ("pserver", "master")] == [True, True]
    other = yaml.safe_load(MANIFEST.read_text()) | {"metadata": {"name": "job-2"}}
    as_json = dave.post("workloads?dry_run=true", other)
    assert as_json.json()["errors"] == []


def test_document_must_specify_a_project_if_the_user_has_several_projects(alice: Caller) -> None:
    rejected = alice("POST", "workloads", ("application/yaml", MANIFEST.read_text()))
    assert rejected.status_code == 422
    (error,) = rejected.json()["errors"]
    assert (error["path"], error["message"]) == ("metadata.namespace", "is required")
    assert error["allowed"] == "one of ads, search, speech, vision"
    (error,) = alice.post("workloads", training()).json()["errors"]
    assert error["path"] == "project"


def test_user_without_a_project_is_referred_to_a_department_admin(frank: Caller) -> None:
    (error,) = frank.post("workloads", training()).json()["errors"]
    assert error["allowed"] == "a project; ask a department admin to make you a member"


def test_viewer_cannot_submit_and_users_without_a_role_see_no_project(erin: Caller, frank: Caller) -> None:
    assert erin.post("workloads", training(project="vision")).status_code == 403
    rejected = frank.post("workloads", training(project="vision"))
    assert (rejected.status_code, rejected.json()["errors"][0]["path"]) == (422, "project")
    assert not Workload.objects.exists()


def test_name_of_a_live_workload_cannot_be_reused(dave: Caller) -> None:
    assert dave.post("workloads", training(project="vision")).status_code == 201
    assert dave.post("workloads", training(project="vision")).status_code == 409


def test_workload_is_suspended_resumed_cancelled_and_deleted(dave: Caller) -> None:
    path = "workloads/" + dave.post("workloads", training(project="vision")).json()["id"]
    assert dave.post(f"{path}/suspend").json()["phase"] == "suspended"
    assert dave.post(f"{path}/resume").json()["phase"] == "pending"
    assert dave("DELETE", path).status_code == 409
    assert dave.post(f"{path}/cancel").json()["phase"] == "cancelled"
    assert dave.post(f"{path}/cancel").json()["phase"] == "cancelled"
    assert dave.post(f"{path}/resume").status_code == 409
    assert dave("DELETE", path).status_code == 204
    assert dave.get(path).status_code == 404


@pytest.mark.heavy
def test_workload_actions_reject_unknown_fields(dave: Caller) -> None:
    path = "workloads/" + dave.post("workloads", training(project="vision")).json()["id"]
    rejected = dave.post(f"{path}/cancel", {"force": True})
    assert (rejected.status_code, rejected.json()["errors"][0]["path"]) == (422, "force")
    assert dave.get(path).json()["phase"] == "pending"


def test_workloads_are_filtered_sorted_and_searched(cast: Cast, bob: Caller) -> None:
    for name, project, priority, labels in (
        ("bert", cast.vision, 10, {"team": "a"}),
        ("vit", cast.vision, 30, {"team": "b"}),
        ("asr", cast.speech, 20, {"team": "a"}),
    ):
        document = training(name, priority=priority, labels=labels)
        workloads.submit(actor=cast.bob, project=project, document=document)

    def names(**query: object) -> list[str]:
        return [item["name"] for item in bob.get("workloads", **query).json()["items"]]

    assert names() == ["asr", "vit", "bert"]
    assert names(sort="priority") == ["bert", "asr", "vit"]
    assert names(sort="-name") == ["vit", "bert", "asr"]
    assert names(project="vision", sort="name") == ["bert", "vit"]
    assert len(names(department="research")) == 3
    assert names(label="team=a", sort="name") == ["asr", "bert"]
    assert names(search="er") == ["bert"]
    assert names(phase=["running", "pending"], sort="name") == ["asr", "bert", "vit"]
    assert names(phase="running") == []
    assert len(names(pool="local", kind="training", submitted_by="bob", sort="gpus")) == 3
    assert names(search=str(Workload.objects.get(name="asr").pk)) == ["asr"]


@pytest.mark.heavy
def test_workload_list_omits_the_spec(cast: Cast, dave: Caller) -> None:
    workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    assert "spec" not in dave.get("workloads").json()["items"][0]


def test_workload_events_are_listed_oldest_first(cast: Cast, dave: Caller) -> None:
    workload = workloads.submit(actor=cast.dave, project=cast.vision, document=training())
    workloads.cancel(actor=cast.dave, workload=workload)
    story = dave.get(f"workloads/{workload.pk}/events").json()["items"]
    assert [event["kind"] for event in story] == ["submitted", Phase.CANCELLED]
    assert {event["project"] for event in story} == {"vision"}
    newest = dave.get("events", workload=str(workload.pk)).json()["items"]
    assert newest == story[::-1]


@pytest.mark.heavy
def test_audit_entry_names_actor_action_and_request(alice: Caller) -> None:
    alice("PATCH", "projects/vision", {"rank": 7}, headers={"X-Request-Id": "mine-1"})
    change = alice.get("audit", object_name="vision").json()["items"][0]
    assert (change["actor"], change["action"], change["request_id"]) == ("alice", "edit", "mine-1")
    assert (change["before"], change["after"]) == ({"rank": 0}, {"rank": 7})


LIMITED = [{"name": "worker", "replicas": 2, "gpu": 1, "limit": {"cpu": 4, "memory_mib": "8Gi"}}]


def test_image_is_rejected_if_no_pool_supports_images(cast: Cast, dave: Caller) -> None:
    document = training(project="vision", image="registry.example.org/torch:2")
    rejected = dave.post("workloads", document)
    (error,) = rejected.json()["errors"]
    assert (rejected.status_code, error["path"]) == (422, "image")
    assert error["message"] == "cannot be used: pool local does not run container images"
    assert "plugins and environment" in error["allowed"]
    dry_run = dave.post("workloads?dry_run=true", document).json()
    assert (dry_run["outcome"], dry_run["errors"]) == ("invalid", [error])
    assert not Workload.objects.exists()


@pytest.mark.parametrize("kind", ["interactive", "service"])
def test_image_is_rejected_for_every_workload_kind_if_no_pool_supports_images(
    cast: Cast, dave: Caller, kind: str
) -> None:
    service: dict[str, Any] = {"service": {}} if kind == "service" else {}
    rejected = dave.post(
        "workloads", training(project="vision", kind=kind, image="docker.io/org/torch", **service)
    )
    assert (rejected.status_code, rejected.json()["errors"][0]["path"]) == (422, "image")


@pytest.mark.heavy
def test_workload_with_an_image_is_limited_to_pools_that_support_images(cast: Cast, dave: Caller) -> None:
    make.pool("pods", runtime="ray")
    document = training(project="vision", image="docker.io/org/torch")
    assert dave.post("workloads", document).json()["pools"] == ["pods"]
    rejected = dave.post("workloads", {**document, "name": "b", "pools": ["pods", "local"]})
    (error,) = rejected.json()["errors"]
    assert (error["path"], error["received"], error["allowed"]) == ("pools[1]", "'local'", "pods")
    rejected = dave.post("workloads", {**document, "name": "b", "pools": ["local"]})
    assert rejected.json()["errors"][0]["allowed"].startswith("one of the pools pods, or no image")


@pytest.mark.heavy
def test_document_with_an_image_may_omit_the_command(cast: Cast, dave: Caller) -> None:
    make.pool("pods", runtime="ray")
    document = {"name": "a", "project": "vision", "roles": [{}], "image": "docker.io/org/torch"}
    assert dave.post("workloads", document).status_code == 201
    (error,) = dave.post("workloads", {"name": "b", "project": "vision", "roles": [{}]}).json()["errors"]
    assert (error["path"], error["message"]) == ("command", "is required for role worker")


def test_submission_warns_about_limits_that_are_not_enforced(cast: Cast, dave: Caller) -> None:
    document = training(project="vision", roles=LIMITED)
    answer = dave.post("workloads", document)
    warning = answer.json()["warnings"][-1]
    assert warning.startswith("The CPU and memory limits of role worker are not enforced on the pool local")
    dry_run = dave.post("workloads?dry_run=true", {**document, "name": "other"}).json()
    assert dry_run["warnings"][-1] == warning
    plain = dave.post("workloads", training("plain", project="vision")).json()
    assert not [warning for warning in plain["warnings"] if "limits" in warning]


@pytest.mark.heavy
def test_limits_and_their_sources_are_shown_before_and_after_the_workload_starts(
    cast: Cast, dave: Caller
) -> None:
    NodePool.objects.update(default_limits={"cpu": 2})
    document = training(project="vision", roles=[{"gpu": 1, "memory_mib": 512}])
    shown = {"memory_mib": 512, "memory_source": "request", "cpu": 2.0, "cpu_source": "pool"}
    dry_run = dave.post("workloads?dry_run=true", document).json()
    assert dry_run["limits"] == [{"pool": "local", "role": "worker", **shown}]
    workload = Workload.objects.get(pk=dave.post("workloads", document).json()["id"])
    limits = {"memory_mib": 512, "memory_source": "request", "cpu_milli": 2000, "cpu_source": "pool"}
    make.place(workload, make.node(cast.pool), [0], limits=limits, memory_peak_mib=310)
    (pod,) = dave.get(f"workloads/{workload.pk}/pods").json()["items"]
    assert (pod["limits"], pod["memory_peak_mib"]) == (shown, 310)


@pytest.mark.heavy
def test_manifest_warns_about_limits_that_are_not_enforced(cast: Cast, dave: Caller) -> None:
    trainer = {"entrypoint": "true", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
    manifest = {"kind": "TrainingJob", "metadata": {"name": "old", "namespace": "vision"},
                "spec": {"trainer": {**trainer, "min-instance": 1, "max-instance": 1}}}  # fmt: skip
    answer = dave.post("workloads", manifest)
    assert answer.status_code == 201, answer.content
    assert "limits of role trainer are not enforced" in answer.json()["warnings"][-1]


@pytest.mark.heavy
def test_enforced_limits_cause_no_warning(cast: Cast, dave: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "CAPABILITIES", {"fake": Capabilities(enforces_limits=True)})
    answer = dave.post("workloads", training(project="vision", roles=LIMITED)).json()
    assert not [warning for warning in answer["warnings"] if "limits" in warning]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("limits", "ignores", "warned"),
    [(["memory", "cpu", "processes"], False, False), (["processes"], False, True), ([], True, False)],
)
def test_submission_warns_if_nodes_cannot_enforce_limits(
    cast: Cast, dave: Caller, monkeypatch: pytest.MonkeyPatch, limits: list[str], ignores: bool, warned: bool
) -> None:
    monkeypatch.setattr(capabilities, "CAPABILITIES", {"fake": Capabilities(enforces_limits=True)})
    make.node(cast.pool, isolation={"limits": limits, "ignores_limits": ignores})
    answer = dave.post("workloads", training(project="vision", roles=LIMITED)).json()
    expected = "Pods of role worker fail to start on nodes of the pool local that cannot enforce limits."
    assert any(warning.startswith(expected) for warning in answer["warnings"]) == warned


def test_every_runtime_declares_its_capabilities() -> None:
    assert set(capabilities.CAPABILITIES) == set(NodePool.Runtime.values)


def test_retry_rules_are_normalized_and_invalid_rules_are_rejected(dave: Caller) -> None:
    rules = [{"on": [75, "KILL"], "max": 2, "backoff": "30s"}]
    sent = dave.post("workloads", training(project="vision", retry=rules))
    assert sent.status_code == 201
    assert sent.json()["spec"]["retry"] == [{"on": [75, "SIGKILL"], "max": 2, "backoff": 30}]
    assert (sent.json()["retries"], sent.json()["avoided_nodes"]) == ({}, [])
    rejected = dave.post("workloads", training("other", project="vision", retry=[{"on": ["node_losst"]}]))
    assert rejected.status_code == 422
    (error,) = rejected.json()["errors"]
    assert (error["path"], error["allowed"]) == ("retry[0].on[0]", "Did you mean `node_lost`?")
