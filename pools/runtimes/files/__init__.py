"""Read the files of ended pods on their nodes."""
