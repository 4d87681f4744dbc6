"""REST models for pool settings and for responses about pools and nodes."""
