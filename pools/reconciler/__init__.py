"""Here a pool is brought one step nearer to the number of nodes that it wants."""
from pools.reconciler.reconcile import reconcile

__all__ = ["reconcile"]
