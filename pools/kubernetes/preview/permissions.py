"""Permissions that Berth needs in a cluster, and a check that its account has them.

`deploy/kubernetes/role.yaml` grants exactly these permissions.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pools.kubernetes.api_server.api import Api, ApiError

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
THREADS = 8
CLUSTER_WIDE = ("nodes", "namespaces")


@dataclass(frozen=True, slots=True)
class Permission:
    """Permission to use a verb on a resource or a subresource such as pods/log.

    Pools also work without optional permissions.
    """

    verb: str
    resource: str
    purpose: str
    group: str = ""
    is_required: bool = True

    @property
    def text(self) -> str:
        place = "" if self.resource in CLUSTER_WIDE else " in all namespaces"
        return f"{self.verb} {self.resource}{place}"

    @property
    def rule(self) -> str:
        """Role rule in YAML that grants this permission."""
        return f'{{apiGroups: ["{self.group}"], resources: [{self.resource}], verbs: [{self.verb}]}}'


PERMISSIONS = (
    Permission("list", "nodes", "find nodes"),
    Permission("watch", "nodes", "follow nodes"),
    Permission("list", "namespaces", "find namespaces that do not belong to Berth", is_required=False),
    Permission("get", "namespaces", "check a project's namespace"),
    Permission("create", "namespaces", "create a project's namespace"),
    Permission("list", "pods", "find pods"),
    Permission("watch", "pods", "follow pods"),
    Permission("get", "pods", "check a pod"),
    Permission("create", "pods", "start pods"),
    Permission("delete", "pods", "stop pods"),
    Permission("get", "pods/log", "read logs"),
    Permission("create", "pods/exec", "run commands in pods", is_required=False),
    Permission("get", "pods/exec", "open connections to commands in pods", is_required=False),
    Permission("create", "pods/portforward", "connect to pod ports", is_required=False),
    Permission("get", "pods/portforward", "open connections to pod ports", is_required=False),
    Permission(
        "list", "resourcequotas", "see the cluster's quotas before they reject pods", is_required=False
    ),
    Permission("watch", "resourcequotas", "see when the cluster's quotas change", is_required=False),
    Permission("create", "secrets", "pass secrets to pods"),
)
# Clusters grant this permission to every account by default.
REVIEW = Permission("create", "selfsubjectaccessreviews", "check permissions", "authorization.k8s.io")


def find_missing_permissions(api: Api) -> list[Permission]:
    """Return the permissions that Berth's account lacks. Raises ApiError or Unreachable."""
    try:
        is_allowed = _is_granted(api, PERMISSIONS[0])
    except ApiError as error:
        if error.status == 403:
            return [REVIEW]
        raise
    with ThreadPoolExecutor(THREADS) as threads:
        others = list(threads.map(lambda permission: _is_granted(api, permission), PERMISSIONS[1:]))
    return [each for each, allowed in zip(PERMISSIONS, [is_allowed, *others], strict=True) if not allowed]


def _is_granted(api: Api, permission: Permission) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "group": permission.group, "resource": resource, "subresource": subresource, "verb": permission.verb,
    }  # fmt: skip
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return bool((api.create(REVIEWS, review).get("status") or {}).get("allowed"))
