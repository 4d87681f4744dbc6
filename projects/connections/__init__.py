"""Open connections of users: sockets and streams end soon after the permission to read them."""
