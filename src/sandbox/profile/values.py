"""What a profile is once it is loaded: a policy, what goes with it, and where each part is from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sandbox.policy import SandboxPolicy

if TYPE_CHECKING:  # it brings the parser of shell text: only who has rules pays for that
    from sandbox.command.rules import Rule

__all__ = [
    "APPROVALS",
    "ApprovalMode",
    "Mode",
    "Profile",
    "Setting",
    "Source",
]

Mode = Literal["read-only", "auto", "full-access"]
ApprovalMode = Literal["untrusted", "on-escape", "never"]
LayerName = Literal["built-in", "user", "profile", "project", "command line"]

APPROVALS: tuple[ApprovalMode, ...] = ("untrusted", "on-escape", "never")


@dataclass(frozen=True, slots=True)
class Source:
    """Where settings come from: a layer; its file, and the digest (SHA-256) of what was read."""

    layer: LayerName
    file: str = ""
    digest: str = ""
    text: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that a layer says.

    ``key``: ``("network", "access")``; of lists and tables the item is part of it. ``at``: where it
    stands in the file. ``refused``: why it is not in force, empty where it is.
    """

    key: tuple[str, ...]
    value: Any
    source: Source
    at: tuple[str | int, ...] = ()
    refused: str = ""

    @property
    def line(self) -> int:
        """The line in its file; 0 where it comes from none. Looked for each time."""
        if not self.at:
            return 0
        from sandbox.profile.locate import line_of

        return line_of(self.source.text, self.at)


@dataclass(frozen=True, slots=True)
class Profile:
    """A policy with what an agent's session needs beside it.

    - ``policy``: what commands may do. ``workspace``: the directory that it was made for.
    - ``mode``: as a person knows it, and as records carry it; never less than the policy comes to.
    - ``approval``: when to ask. ``unsandboxed``: whether a command may be retried, after approval,
      with no sandbox at all.
    - ``rules``: what the user, and a project, say about commands by their first words.
    - ``settings``: all that is in force, and what a project's file may not have, with sources.
    - ``sources``: the files that were read, each once.
    - ``trusted``: whether the user trusts the project in this workspace: else it only tightens.
    """

    policy: SandboxPolicy
    workspace: str
    mode: Mode
    approval: ApprovalMode
    unsandboxed: bool
    rules: tuple[Rule, ...]
    settings: tuple[Setting, ...]
    sources: tuple[Source, ...]
    trusted: bool = False
