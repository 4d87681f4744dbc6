"""Reconcile inference services with their desired state.

Only the leader reconciles services. A pass over a service probes its engines outside a transaction, updates
rows while it holds the lock on the service's row, then calls routers and engines. The intent of each call is
stored before the call, and its result afterwards. The next pass can therefore continue after a crash at any
point.
"""
