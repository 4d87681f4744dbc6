"""Files of pods, read on their nodes after the pods have ended."""
