"""Here people's browsers reach the ports of pods: each port is an origin of its own, apart from Berth's."""
