"""Convert a pod's location (its pool and namespace) to and from text in the ledger."""

from pools.runtimes.ledger import LedgerEntry


def namespace_key(pool: str, namespace: str) -> str:
    return f"{pool}/{namespace}"


def pool_name(entry: LedgerEntry) -> str:
    return entry.instance_id.partition("/")[0]


def api_path(entry: LedgerEntry, pod_id: str) -> str:
    return f"/api/v1/namespaces/{entry.instance_id.partition('/')[2]}/pods/{pod_id}"
