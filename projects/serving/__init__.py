"""Clients of inference engines and routers."""
