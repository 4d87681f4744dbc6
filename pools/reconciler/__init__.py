"""Reconcile the nodes of pools with their desired number."""

from pools.reconciler.reconcile import reconcile

__all__ = ["reconcile"]
