"""The shim: a small process that starts one pod and records its end.

One shim runs for each pod, so it imports little and only from the standard library: pathlib, contextlib, json
and signal each take as long to import as Python takes to start.
"""
