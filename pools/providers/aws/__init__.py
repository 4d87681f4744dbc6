"""Amazon EC2 provider. The AWS SDK is imported on first use."""
