"""Move inference services from their current to their desired state.

One process leads. A pass over a service probes its engines without a transaction, then changes rows under the
lock of the service's row, then calls routers and engines. The intent of each call is stored before it and its
result afterwards, so that the next pass can continue after a crash at any point.
"""
