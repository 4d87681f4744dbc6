"""REST endpoints for SSH hosts."""
