"""Runs commands that nobody trusts, confined by the operating system.

``run`` runs one, ``Sandbox`` is what to keep when there are many; a ``SandboxPolicy`` says what
they may do. See the README for what that protects and what it does not.
"""

from sandbox.batch import Command, Done, run_many
from sandbox.denial import Denial, DenialKind, Evidence, Grant
from sandbox.entries import Access, Entry, Special
from sandbox.environ import Environment
from sandbox.errors import (
    ArgumentsTooLong,
    CommandFailed,
    CommandNotExecutable,
    CommandNotFound,
    HostError,
    InvalidArgument,
    InvalidLimit,
    InvalidPath,
    InvalidProfile,
    PolicyError,
    RecordsLost,
    SandboxBug,
    SandboxException,
    SandboxLost,
    SandboxWeakened,
    StartError,
    StillRunning,
    Unavailable,
    Unenforceable,
    WorkingDirectoryError,
    WorkspaceRefused,
)
from sandbox.headers import get_include
from sandbox.limits import Limits
from sandbox.live import Sandbox
from sandbox.loading import load_profile
from sandbox.policy import SandboxPolicy
from sandbox.presets import full_access, preset, read_only, workspace_write
from sandbox.process import Process
from sandbox.reach import FileEntry, FileStat
from sandbox.result import Enforcement, Result, TextResult, Usage, Weaker
from sandbox.shared import run
from sandbox.streams import DEVNULL, PIPE, STDOUT
from sandbox.transfer import Transfer
from sandbox.version import __version__ as __version__

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "Access",
    "ArgumentsTooLong",
    "Command",
    "CommandFailed",
    "CommandNotExecutable",
    "CommandNotFound",
    "Denial",
    "DenialKind",
    "Done",
    "Enforcement",
    "Entry",
    "Environment",
    "Evidence",
    "FileEntry",
    "FileStat",
    "Grant",
    "HostError",
    "InvalidArgument",
    "InvalidLimit",
    "InvalidPath",
    "InvalidProfile",
    "Limits",
    "PolicyError",
    "Process",
    "RecordsLost",
    "Result",
    "Sandbox",
    "SandboxBug",
    "SandboxException",
    "SandboxLost",
    "SandboxPolicy",
    "SandboxWeakened",
    "Special",
    "StartError",
    "StillRunning",
    "TextResult",
    "Transfer",
    "Unavailable",
    "Unenforceable",
    "Usage",
    "Weaker",
    "WorkingDirectoryError",
    "WorkspaceRefused",
    "full_access",
    "get_include",
    "load_profile",
    "preset",
    "read_only",
    "run",
    "run_many",
    "workspace_write",
]
