# Generated from berth/client/aio/workloads/__init__.py by `python -m berth.client.generate`; do not edit.
"""Methods for workloads, arrays, code, outputs, schedules and templates, and channels to pods."""
