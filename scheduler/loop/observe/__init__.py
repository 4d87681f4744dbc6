"""Read rows into the frozen view on which a decision is based."""
