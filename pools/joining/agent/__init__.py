"""Agent that joins a machine to a pool and follows the server's instructions.

Machines run this package as a zip file named `berth_agent`. It uses only the standard library and runs on
Python 3.9 and newer.
"""
