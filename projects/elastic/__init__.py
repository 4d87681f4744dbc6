"""Carry inference services from their current to their desired state.

One process leads. A pass over a service looks first, with no transaction open; then moves rows, under the
lock of the service's row; then calls routers and engines, each call between two writes of its own: what is
about to be done stands in a row before, what came of it after. A crash at any point leaves rows from which
the next pass goes on.
"""
