"""Browser access to the ports of pods. Each port has its own origin."""
