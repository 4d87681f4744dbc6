"""Asynchronous client, from which the synchronous client is generated.

Plugin contexts and joblib are synchronous. In an asynchronous session, run code that uses joblib in a thread
(`asyncio.to_thread`).
"""
