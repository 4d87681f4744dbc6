"""Here what Berth does becomes OpenTelemetry traces, where the environment names who collects them."""
