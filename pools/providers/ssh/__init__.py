"""Provider of hosts that Berth reaches over SSH."""
