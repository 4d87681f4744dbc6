"""Screens of `berth top`."""
