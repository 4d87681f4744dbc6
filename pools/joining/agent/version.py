"""Version of the agent. The server writes it when it packs the agent."""

VERSION = "0"
