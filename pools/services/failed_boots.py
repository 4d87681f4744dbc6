"""Count a pool's failed boots, and delay or stop launches after them.

A boot fails if a node is lost before it becomes ready. Rejected requests do not count.
"""

from datetime import datetime, timedelta
from typing import Any

from pools import history
from pools.engine.boots import MAX_DELAY, boot_retry_delay
from pools.models import Node, NodePool, ScalingEvent
from pools.models.scaling import ScalingKind

FIELDS = ("boot_failures", "boot_error", "boot_retry_at", "last_error")


def record_failed_boot(node: Node, reason: str, *, at: datetime) -> None:
    """Count the failed boot of a node that was lost, at most one per launch request.

    The caller must hold the lock on `node.pool`.
    """
    pool = node.pool
    already_counted = ScalingEvent.objects.filter(
        pool=pool, kind=ScalingKind.BOOT_FAILED, data__order=node.client_token
    )
    if already_counted.exists():
        return
    pool.boot_failures += 1
    delay = boot_retry_delay(pool.boot_failures)
    pool.boot_retry_at = None if pool.provisioning_stopped else at + timedelta(seconds=delay)
    pool.boot_error = pool.last_error = _failure_message(pool, node, reason, delay)
    pool.save(update_fields=FIELDS)
    history.write(
        pool, ScalingKind.BOOT_FAILED, pool.boot_error, at=at, node=node, order=node.client_token,
        failures=pool.boot_failures, limit=pool.boot_failure_limit, stopped=pool.provisioning_stopped,
    )  # fmt: skip


def reset_failed_boots(pool: NodePool) -> bool:
    """Reset the count of failed boots.

    Return whether it was above zero. Call this after a node has become ready or a user has requested a retry.
    The caller must hold the lock on the pool.
    """
    if not pool.boot_failures:
        return False
    if pool.last_error == pool.boot_error:
        pool.last_error = ""
    pool.boot_failures, pool.boot_error, pool.boot_retry_at = 0, "", None
    pool.save(update_fields=FIELDS)
    return True


def retry(pool: NodePool, *, actor: Any, at: datetime, by: str = "retried") -> bool:
    """Let the pool request nodes again immediately. Return False if no boot has failed.

    The caller must hold the lock on the pool.
    """
    before = pool.boot_failures
    if not reset_failed_boots(pool):
        return False
    reason = f"{by} by {actor.name}: failed boots reset to 0"
    history.write(pool, ScalingKind.RETRIED, reason, at=at, failures=before)
    return True


def are_launches_delayed(pool: NodePool, now: datetime) -> bool:
    """Return whether failed boots currently delay or stop the pool's launch requests."""
    if pool.provisioning_stopped:
        return True
    if pool.boot_retry_at is None:
        return False
    return now < pool.boot_retry_at <= now + timedelta(seconds=MAX_DELAY)


def _failure_message(pool: NodePool, node: Node, reason: str, delay: int) -> str:
    reason = reason.rstrip(" .:;,")  # a program's output may end with punctuation
    if pool.provisioning_stopped:
        count_text = (
            "1 failed boot" if pool.boot_failures == 1 else f"{pool.boot_failures} failed boots in a row"
        )
        advice = f"Fix the cause, then run `berth pool retry {pool.name}`."
        return f"Provisioning stopped after {count_text}. Latest ({node.name}): {reason}. {advice}"
    limit_text = f" of {pool.boot_failure_limit}" if pool.boot_failure_limit else ""
    boot = f"Failed boot {pool.boot_failures}{limit_text} ({node.name})"
    return f"{boot}: {reason}. Next attempt in {delay} s."
