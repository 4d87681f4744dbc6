"""SSH for running pods: settings for the user's own SSH client, and the server for a pod."""
