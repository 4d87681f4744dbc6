"""Read rows into the frozen view that a decision is based on."""
