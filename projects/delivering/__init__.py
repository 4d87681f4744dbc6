"""Here news leaves the house: by mail, to web addresses, to chats."""
