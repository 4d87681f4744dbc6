"""Validation rules of workload documents."""
