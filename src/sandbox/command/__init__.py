"""What can be told of a command before it runs: safe, unknown, dangerous, forbidden, and why.

Importing this brings the parser of shell text; ``import sandbox`` does not.
"""

from sandbox.command.assess import assess_command_safety
from sandbox.command.context import Context
from sandbox.command.git import HELPERS_OFF
from sandbox.command.rules import Decision, Rule, Rules
from sandbox.command.verdict import Assessment, Cause, Reason, Verdict

__all__ = [
    "HELPERS_OFF",
    "Assessment",
    "Cause",
    "Context",
    "Decision",
    "Reason",
    "Rule",
    "Rules",
    "Verdict",
    "assess_command_safety",
]
