"""Read side of the scheduler: what it decided, and what that means for users."""
