"""The node side of a Ray pool: a raylet and an agent.

It needs only Python's standard library, the Ray command and the shim of the local runtime.
"""
