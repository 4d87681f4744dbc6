"""The Amazon EC2 provider; its SDK is imported on first use."""
