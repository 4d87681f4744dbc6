"""Queries for costs, idle GPUs, reported metrics, services and volumes."""
