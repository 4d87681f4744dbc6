"""Asynchronous client, the source of the generated synchronous client.

Plugin contexts and joblib are synchronous: run code with joblib in a thread (`asyncio.to_thread`).
"""
