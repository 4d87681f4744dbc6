"""REST models for settings of pools, and for responses about pools and nodes."""
