"""The node side of a Ray pool: a raylet and an agent.

It runs there by itself, with Python's standard library, Ray's command and the local runtime's keeper.
"""
