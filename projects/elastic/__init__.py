"""Reconcile inference services with their desired state, on the leader only.

The intent of each call to a router or engine is stored before it, so the next pass can continue after a
crash.
"""
