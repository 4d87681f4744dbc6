"""Version of the agent. The server writes it when it packages the agent."""

VERSION = "0"
