"""REST endpoints for user accounts, members and sign-in."""
