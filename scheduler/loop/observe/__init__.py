"""Read rows into the frozen view that a decision starts from."""
