"""OpenTelemetry traces, enabled by the environment."""
