"""The keeper: a small process that starts one pod and records its end.

It stands between an order and a running command, and one lives beside every pod: so it imports little
(pathlib, contextlib, json and signal each take as long as Python takes to start), and of the standard
library only.
"""
