"""Run pods as Ray jobs on the nodes chosen by the scheduler.

Shims provide what Ray's jobs API lacks, such as signals and byte offsets in logs. An agent on each node gives
access to them. No module here imports Ray.
"""
