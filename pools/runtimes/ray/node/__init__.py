"""Node side of a Ray pool: a raylet and an agent.

This package needs only Python's standard library, the `ray` command and the local runtime's shim.
"""
