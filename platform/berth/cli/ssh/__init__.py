"""SSH access to running pods: settings for the user's SSH client, and an SSH server per pod."""
