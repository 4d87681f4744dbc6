"""Open connections of users, which end soon after the user loses permission to read them."""
