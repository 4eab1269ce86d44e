"""An agent's session: what is asked about a command, who may answer, what is remembered."""
