"""Read database rows into the immutable view on which a decision is based."""
