"""Run a Ray pool's node: Ray itself, and the agent that Berth sends requests to.

Needs only the standard library, the `ray` command and the local runtime's shim.
"""
