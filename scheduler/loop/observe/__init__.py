"""Read database rows into the immutable view that a decision is based on."""
