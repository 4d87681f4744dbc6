"""The shim: a small process that starts one pod and records its end.

Each pod has its own shim, so the shim imports little. Importing pathlib, contextlib, json or signal takes as
long as starting Python.
"""
