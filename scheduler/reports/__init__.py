"""Read side of the scheduler: its decisions and what they mean for users."""
