"""Reconcile each pool's nodes with its desired node count."""

from pools.reconciler.reconcile import reconcile

__all__ = ["reconcile"]
