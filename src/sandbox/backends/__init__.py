"""How a policy is enforced on each operating system."""
