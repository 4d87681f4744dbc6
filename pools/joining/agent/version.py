"""Version of the agent, written by the server when it packages the agent."""

VERSION = "0"
