"""Long-lived connections of users.

A connection ends soon after its user loses the permission to read from it.
"""
