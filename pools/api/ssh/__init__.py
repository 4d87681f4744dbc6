"""REST endpoints of SSH hosts."""
