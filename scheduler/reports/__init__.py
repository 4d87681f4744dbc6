"""Read-only views of the scheduler's decisions, their effects and usage."""
