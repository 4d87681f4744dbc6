"""Check what a workload document refers to: its project, pools, code, secrets and volumes."""
