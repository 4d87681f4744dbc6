"""Provider whose nodes are hosts that Berth reaches over SSH."""
