"""Connections of users, which end soon after a user loses permission to read from them."""
