"""Here one machine is a node of a Ray cluster: a raylet, and an agent that knows its pods.

It runs there by itself, with Python's standard library, Ray's command and the local runtime's keeper.
"""
