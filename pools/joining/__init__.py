"""Here machines call in: once to join, then again and again to hear what they are to be."""
