"""Hosts that Berth reaches over SSH."""
