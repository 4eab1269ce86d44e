"""An agent's session: every tool call goes through it, and what it decides and does is recorded."""
