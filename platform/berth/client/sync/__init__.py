"""Synchronous client, generated from the asynchronous client."""
