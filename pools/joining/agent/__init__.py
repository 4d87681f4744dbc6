"""Agent that joins a machine to a pool and follows the server's instructions.

Machines run this package as a zip file named `berth_agent`, with the standard library of Python 3.9 or newer.
"""
