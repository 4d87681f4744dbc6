"""Install plugin environments on this machine and prepare them for others."""
