"""Long-lived connections of users. They end soon after a user loses permission to read from them."""
