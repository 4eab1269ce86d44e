"""Sessions for tests: with an approver that notes what it is asked, and a log beside them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logkit import documents

from sandbox import SandboxPolicy, workspace_write
from sandbox.command.rules import Rule
from sandbox.profile.values import ApprovalMode, Profile
from sandbox.session import ApprovalRequest, Session, verify

__all__ = ["PYTHON", "Asked", "Place", "body", "kinds", "profile"]

PYTHON = "/usr/bin/python3"


class Asked:
    """Answers with the given choices in turn, the last one ever after; and what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers) or ["once"]
        self.requests: list[ApprovalRequest] = []

    def __call__(self, request: ApprovalRequest) -> Any:
        self.requests.append(request)
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(found, BaseException):
            raise found
        return found(request) if callable(found) else found

    @property
    def last(self) -> ApprovalRequest:
        return self.requests[-1]

    def __len__(self) -> int:
        return len(self.requests)


def profile(
    policy: SandboxPolicy,
    workspace: Path,
    *,
    approval: ApprovalMode = "on-escape",
    unsandboxed: bool = False,
    rules: tuple[Rule, ...] = (),
) -> Profile:
    return Profile(policy, str(workspace), "auto", approval, unsandboxed, rules, (), ())


class Place:
    """A workspace, a directory beside it with one `file`, and one for logs."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.work, self.out, self.log = top / "work", top / "out", top / "log"
        for path in (self.work, self.out):
            path.mkdir(exist_ok=True)
        (self.out / "file").write_text("outside\n")

    def policy(self, **how: Any) -> SandboxPolicy:
        """The default policy here; what this host enforces less of it is accepted."""
        return accepting(workspace_write(self.work, **how))

    def session(
        self,
        policy: SandboxPolicy | None = None,
        approver: Any = None,
        *,
        unsandboxed: bool = False,
        rules: tuple[Rule, ...] = (),
        **how: Any,
    ) -> Session:
        made = profile(policy or self.policy(), self.work, unsandboxed=unsandboxed, rules=rules)
        how = {"log": self.log, "changes": False} | how
        return Session(made, workspace=self.work, approver=approver, **how)

    def records(self, *events: str) -> list[dict[str, Any]]:
        """The records of these kinds (default: all) of all that was logged here."""
        found = documents(self.log)
        return [one for one in found if not events or one["event"] in events]

    def verified(self) -> int:
        """How many records there are, in a chain without a fault."""
        found = verify(str(self.log))
        assert found.ok, found
        return len(self.records())


def accepting(policy: SandboxPolicy) -> SandboxPolicy:
    """With all that Landlock alone does less said to be acceptable, so that only escapes ask."""
    from sandbox.parts import PARTS

    return policy.with_accept(PARTS)


def kinds(records: list[dict[str, Any]]) -> list[str]:
    return [one["event"] for one in records]


def body(act: Callable[..., Any]) -> str:
    """Where a function's own file is, for commands that import it."""
    return os.path.dirname(os.path.abspath(act.__code__.co_filename))
