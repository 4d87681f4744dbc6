"""Open connections of users. Sockets and streams end soon after the user loses permission to read them."""
