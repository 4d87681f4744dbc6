"""The node side of a Ray pool: a raylet and an agent.

This package needs only Python's standard library, the `ray` command and the shim of the local runtime.
"""
