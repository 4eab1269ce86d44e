"""An agent's session: every tool call goes through it; what it decides and does is recorded."""
