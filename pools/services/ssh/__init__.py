"""Manage the hosts of SSH pools."""
