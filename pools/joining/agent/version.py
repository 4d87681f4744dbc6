"""The agent's version. The server writes it when it packages the agent."""

VERSION = "0"
