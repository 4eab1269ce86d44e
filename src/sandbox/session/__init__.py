"""The agent's session: every tool call goes through it."""
