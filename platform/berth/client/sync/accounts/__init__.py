# Generated from berth/client/aio/accounts/__init__.py by `python -m berth.client.generate`; do not edit.
"""Methods for departments, projects, people and their subscriptions."""
