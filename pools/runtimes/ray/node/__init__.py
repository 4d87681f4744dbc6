"""The node side of a Ray pool: a raylet and an agent.

It needs only Python's standard library, the Ray command and the keeper of the local runtime.
"""
