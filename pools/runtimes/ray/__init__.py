"""Run pods as Ray jobs on the nodes chosen by the scheduler.

Ray decides that a job runs once and where it was told to, and sees that a node died. What Ray's jobs API
does not tell (signals, bytes of a log, a grace that becomes shorter) is known by the keeper that a job
starts, and told by a small agent beside each raylet. Nothing here imports Ray: its jobs API is HTTP, and
nodes start it by its command.
"""
