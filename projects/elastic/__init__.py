"""Move inference services from their current to their desired state.

Only the leader runs these passes. A pass over a service probes its engines outside a transaction, then
updates rows while holding the lock on the service's row, then calls routers and engines. The intent of each
call is stored before the call, and its result afterwards. The next pass can therefore continue after a crash
at any point.
"""
