"""Models for running workloads and their pods: images, channels, ports, metrics, outputs and leftovers."""
