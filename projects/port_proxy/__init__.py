"""Browser access to pod ports. Each port has its own origin."""
