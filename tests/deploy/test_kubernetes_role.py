"""Test that the shipped role for Kubernetes has exactly the permissions that Berth uses."""

from pathlib import Path

import pytest
import yaml

from pools.kubernetes.preview.examine import examine_cluster
from pools.kubernetes.preview.permissions import PERMISSIONS, REVIEW
from pools.providers.base import Shape
from pools.runtimes.base import ChannelRejected
from tests.contracts.kubernetes.stage import fake_kubernetes_stage
from tests.contracts.pods import ended, poll_until, running
from tests.contracts.test_runtime import exchange

ROLE = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "role.yaml"


def granted() -> set[tuple[str, str]]:
    documents = yaml.safe_load_all(ROLE.read_text())
    (role,) = (document for document in documents if document["kind"] == "ClusterRole")
    return {
        (verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }


def test_pool_preview_checks_exactly_the_permissions_of_the_role() -> None:
    assert {(each.verb, each.resource) for each in (*PERMISSIONS, REVIEW)} == granted()


def test_role_permits_exactly_the_calls_that_berth_makes(tmp_path: Path) -> None:
    with fake_kubernetes_stage(tmp_path / "runtime") as stage:
        secrets = {"secret_env": {"PASSWORD": "x"}, "registry_auth": "{}"}
        stage.runtime.start(stage.order("p-1", "train", **secrets))
        running(stage.runtime, "p-1")
        stage.access["prod"].cluster.mirror.nodes()
        examine_cluster(stage.access["prod"], Shape(1000, 1024), {})
        stage.runtime.read_log("p-1", 0, 100)
        exchange(stage.runtime.open_channel("p-1"), ["true"], b"")
        with pytest.raises(ChannelRejected, match="simulated pods have no ports"):
            stage.runtime.open_port("p-1", 8080)
        stage.runtime.stop("p-1", 5)
        ended(stage.runtime, "p-1")
        stage.runtime.forget("p-1")
        # The watches begin in the background.
        calls = poll_until(lambda: set(stage.cluster.calls), lambda calls: calls >= granted())
        assert calls == granted()
