"""Here nodes come from Amazon EC2: the only place that knows its SDK, which is imported when it is needed."""
