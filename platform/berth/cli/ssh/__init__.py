"""SSH for running pods: hosts and settings for the user's own client, and the server in front of a pod."""
