"""The scheduler loop: observe, decide, commit, dispatch, reconcile."""
