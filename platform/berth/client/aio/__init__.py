"""Asynchronous client, the source of the generated synchronous client.

Plugin contexts and joblib are synchronous. In an asynchronous session, run code that uses joblib in a thread
(`asyncio.to_thread`).
"""
