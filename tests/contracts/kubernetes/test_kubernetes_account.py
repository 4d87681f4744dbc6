"""Tests for the permissions of the shipped service account on a real cluster, and for its use from a pod."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pools.kubernetes.api_server.api import Api, ApiError
from pools.kubernetes.api_server.credentials import in_cluster_connection, parse_kubeconfig
from pools.kubernetes.preview.permissions import PERMISSIONS, REVIEW, REVIEWS
from tests.contracts.kubernetes.cluster import with_shipped_role
from tests.contracts.kubernetes.stage import RealKubernetesStage
from tests.contracts.pods import ended, running

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]  # the first test waits for the cluster

VERBS = (
    "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate",
    "impersonate",
)  # fmt: skip
# Kubernetes grants these to every account.
BY_DEFAULT = {
    ("authorization.k8s.io", "create", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "create", "selfsubjectrulesreviews"),
}


@pytest.fixture
def account(kubeconfig: str) -> Iterator[Api]:
    api = Api(parse_kubeconfig(with_shipped_role(kubeconfig)))
    yield api
    api.close()


def resources(api: Api) -> Iterator[tuple[str, str]]:
    """Return all API groups and resources of the cluster, including subresources."""
    groups = api.get("/apis")["groups"]
    places = {"": "/api/v1"} | {
        group["name"]: f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups
    }
    for group, path in places.items():
        for resource in api.get(path)["resources"]:
            yield group, resource["name"]
    yield from (("", name) for name in ("users", "groups"))  # these permissions are only for impersonation


def may(api: Api, group: str, verb: str, resource: str) -> bool:
    """Return whether the account may make this request in all namespaces."""
    name, _, part = resource.partition("/")
    attributes = {"group": group, "resource": name, "subresource": part, "verb": verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }  # fmt: skip
    return bool(api.create(REVIEWS, review)["status"]["allowed"])


def test_service_account_permits_exactly_the_calls_that_berth_makes(account: Api) -> None:
    calls = [
        (group, verb, resource)
        for group, resource in resources(account)
        for verb in (VERBS if "/" not in resource else VERBS[:8])
    ]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda call: may(account, *call), calls))
    allowed = {call for call, answer in zip(calls, answers, strict=True) if answer}
    assert len(calls) > 500, "the cluster lists its resources"
    used = {(each.group, each.verb, each.resource) for each in (*PERMISSIONS, REVIEW)}
    assert allowed == used | BY_DEFAULT


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("list", "/api/v1/secrets"),
        ("list", "/api/v1/configmaps"),
        ("delete", "/api/v1/nodes/node-1"),
        ("delete", "/api/v1/namespaces/default"),
        ("create", "/api/v1/namespaces/default/configmaps"),
    ],
)
def test_service_account_is_denied_other_calls(account: Api, verb: str, path: str) -> None:
    configmap = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "berth"}}
    calls = {
        "list": lambda: account.list(path), "delete": lambda: account.delete(path),
        "create": lambda: account.create(path, configmap),
    }  # fmt: skip
    with pytest.raises(ApiError) as raised:
        calls[verb]()
    assert raised.value.status == 403


def test_in_cluster_service_account_works_across_a_token_rotation(kubeconfig: str, tmp_path: Path) -> None:
    outside = parse_kubeconfig(with_shipped_role(kubeconfig))
    server, mounted = urlsplit(outside.server), tmp_path / "serviceaccount"
    mounted.mkdir()
    (mounted / "ca.crt").write_text(outside.ca)
    (mounted / "token").write_text(f"{outside.token}\n")
    environ = {
        "KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port),
    }  # fmt: skip
    stage = RealKubernetesStage(tmp_path / "runtime", in_cluster_connection(environ, mounted))
    stage.runtime.start(stage.long("p-1"))
    running(stage.runtime, "p-1")
    (mounted / "token").write_text(parse_kubeconfig(with_shipped_role(kubeconfig)).token)
    stage.end_pod("p-1", 0)
    assert ended(stage.runtime, "p-1").exit_code == 0
    stage.sweep(Api(parse_kubeconfig(kubeconfig)))
    stage.close()
