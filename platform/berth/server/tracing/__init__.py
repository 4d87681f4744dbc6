"""OpenTelemetry traces, enabled by environment variables."""
