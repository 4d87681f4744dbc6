"""Browser access to the ports of pods, each port an origin of its own."""
