"""Commands for logs, processes, ports, metrics and files of pods."""
