"""Open connections of people: sockets and streams end soon after the right to them does."""
