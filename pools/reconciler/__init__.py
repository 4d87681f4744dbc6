"""Bring a pool one step closer to its desired number of nodes."""

from pools.reconciler.reconcile import reconcile

__all__ = ["reconcile"]
