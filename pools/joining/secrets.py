"""Derive and verify the secrets of machines.

What an order's machines join with, and what any machine calls with later, is worked out from the
installation's key: nothing of it is stored, and an order that is repeated after a crash says the same again.
Only tokens that people issue are random, and of them a digest is kept.
"""

import hashlib
import secrets

from django.utils.crypto import constant_time_compare, salted_hmac

SALT = "berth.pools.joining"
PEOPLE = "join_"


def for_order(pool: str, client_token: str) -> str:
    """Lets each machine of the order join."""
    return _signed("order", f"{pool}.{client_token}")


def for_node(key: int) -> str:
    return _signed("node", str(key))


def for_machine(key: int) -> str:
    return _signed("machine", str(key))


def for_pod(key: str) -> str:
    """What the worker in a session's pod shows; it counts as long as the pod lives."""
    return _signed("pod", key)


def for_port(key: str) -> str:
    """What a pod that opens ports knows us by: others on its node can call it too."""
    return _signed("port", key)


def for_cluster(pool: str) -> str:
    """What the nodes of a pool's cluster ask each other, and us, for."""
    return _signature("cluster", pool)


def for_gang(workload: str, run: int) -> str:
    """What the pods of one run know of each other, and nobody else."""
    return _signature("gang", f"{workload}.{run}")


def is_a_machines(secret: str) -> bool:
    """Whether it is one to call with, of whatever machine; asks no row."""
    return any(subject(secret, kind) is not None for kind in ("node", "machine"))


def subject(secret: str, kind: str) -> str | None:
    """What it stands for, if we made it for that."""
    said, _, what = secret.partition(".")
    value, _, signature = what.rpartition(".")
    if said != kind or not value or not constant_time_compare(signature, _signature(kind, value)):
        return None
    return value


def issue() -> tuple[str, str]:
    """A random one, and its digest."""
    secret = PEOPLE + secrets.token_urlsafe(32)
    return secret, digest(secret)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _signed(kind: str, value: str) -> str:
    return f"{kind}.{value}.{_signature(kind, value)}"


def _signature(kind: str, value: str) -> str:
    return salted_hmac(SALT, f"{kind}.{value}", algorithm="sha256").hexdigest()
