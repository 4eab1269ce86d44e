"""An agent's session: every tool call goes through it; what it decides and does is recorded.

``Session`` is what an agent's program keeps, ``process_exec_tool_call`` runs one command of the
agent, ``apply_edit`` edits files; ``sandbox.session.aio`` has both for programs that await.
"""

from sandbox.session.approval import Answer, ApprovalRequest, Choice
from sandbox.session.approvers import Approver, AsyncApprover, CallbackApprover, FixedApprover
from sandbox.session.calls import apply_edit, process_exec_tool_call
from sandbox.session.chain import Problem, Reader, Verified, verify
from sandbox.session.changes import FileChanges
from sandbox.session.decide import Action, Decision, Enforced, Ground, decide
from sandbox.session.edit import Edit
from sandbox.session.editing import EditResult
from sandbox.session.log import Log
from sandbox.session.prompt import TerminalApprover
from sandbox.session.session import Session
from sandbox.session.trust import Trust, Trusted
from sandbox.session.trustfile import TrustFile
from sandbox.session.values import Delta, ToolCall, ToolResult

__all__ = [
    "Action",
    "Answer",
    "ApprovalRequest",
    "Approver",
    "AsyncApprover",
    "CallbackApprover",
    "Choice",
    "Decision",
    "Delta",
    "Edit",
    "EditResult",
    "Enforced",
    "FileChanges",
    "FixedApprover",
    "Ground",
    "Log",
    "Problem",
    "Reader",
    "Session",
    "TerminalApprover",
    "ToolCall",
    "ToolResult",
    "Trust",
    "TrustFile",
    "Trusted",
    "Verified",
    "apply_edit",
    "decide",
    "process_exec_tool_call",
    "verify",
]
