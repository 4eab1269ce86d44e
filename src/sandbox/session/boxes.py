"""The sandboxes of a session: one for its policy, and few for what was approved beyond it."""

from __future__ import annotations

from collections import OrderedDict

from sandbox.denial import Grant
from sandbox.errors import InvalidArgument
from sandbox.live import Sandbox
from sandbox.locks import ForkLock
from sandbox.policy import SandboxPolicy
from sandbox.session.escalation import check_settled

__all__ = ["Boxes"]

_WIDER_KEPT = 4


class Boxes:
    """Sandboxes by policy. The first one stays; of the wider ones the last few that were used.

    Each has a /tmp of its own, where isolation is namespaces: what a command left there is not
    seen by its retry under a wider policy.
    """

    def __init__(self, policy: SandboxPolicy, workspace: str) -> None:
        self._workspace = workspace
        self._lock = ForkLock()
        self._wider: OrderedDict[SandboxPolicy, Sandbox] = OrderedDict()
        self._used: dict[SandboxPolicy, int] = {}
        self._closed = False
        self.base = self._made(policy)

    def take(self, policy: SandboxPolicy, grant: Grant | None = None) -> Sandbox:
        """A sandbox for a policy, to be given back. Raises what ``Sandbox`` does.

        ``grant``: what the policy has beside the first one; ``InvalidPath`` where it leads
        elsewhere by now.
        """
        box = self.base if policy == self.base.policy else self._take_wider(policy)
        try:
            if grant is not None:
                check_settled(grant, box.resolved)
        except BaseException:
            self.give_back(box)
            raise
        return box

    def _take_wider(self, policy: SandboxPolicy) -> Sandbox:
        with self._lock.held:
            if self._closed:
                raise InvalidArgument("session", "...", "was closed")
            box = self._wider.get(policy)
            if box is None:
                box = self._wider[policy] = self._made(policy)
            self._wider.move_to_end(policy)
            self._used[policy] = self._used.get(policy, 0) + 1
            return box

    def give_back(self, box: Sandbox) -> None:
        """Says that a call is done with a sandbox."""
        if box is self.base:
            return
        with self._lock.held:
            self._used[box.policy] -= 1
            if not self._used[box.policy]:
                del self._used[box.policy]
            idle = [policy for policy in self._wider if policy not in self._used]
            surplus = [self._wider.pop(policy) for policy in idle[: len(idle) - _WIDER_KEPT]]
        for old in surplus:
            old.close()

    def close(self) -> None:
        """Closes all of them; what runs in them ends."""
        with self._lock.held:
            self._closed = True
            wider = list(self._wider.values())
            self._wider.clear()
        for box in (self.base, *wider):
            box.close()

    def _made(self, policy: SandboxPolicy) -> Sandbox:
        return Sandbox(policy, workspace=self._workspace, place=self._workspace)
