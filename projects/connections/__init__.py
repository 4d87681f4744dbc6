"""User connections, which end soon after the user loses permission to read from them."""
