"""Run pods as Ray jobs on the nodes chosen by the scheduler.

Ray runs each job once, on its node, and detects dead nodes. The shim that a job starts provides what Ray's
jobs API lacks: signals, byte offsets in logs, and grace periods that can be shortened. A small agent on each
node provides access to the shim's records. No module of this package imports Ray: Berth uses Ray's jobs API
over HTTP, and nodes start Ray with the `ray` command.
"""
