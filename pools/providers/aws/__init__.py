"""Provider for Amazon EC2. The AWS SDK is imported on first use."""
