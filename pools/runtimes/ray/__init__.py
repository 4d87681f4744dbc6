"""Run pods as Ray jobs on the nodes chosen by the scheduler.

Shims provide what Ray's jobs API lacks, such as signals and byte offsets in logs. An agent on each node
provides access to the shims' records. No module of this package imports Ray.
"""
