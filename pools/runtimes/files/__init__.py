"""Read the files of finished pods on their nodes."""
