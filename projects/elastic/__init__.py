"""Reconcile inference services with their desired state, on the leader only.

The intent of each call to a router or engine is stored before the call is made, so that the next pass can
continue after a crash.
"""
