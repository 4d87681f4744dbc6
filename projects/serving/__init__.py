"""Clients for inference engines and routers."""
