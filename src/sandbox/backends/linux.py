"""Linux: policies become blobs for ``_sandcore``, and helpers that enforce them.

What decides here is the host: namespaces or none, which Landlock ABI, and whether there is a
filter. Whether namespaces can be had is found out by having them: hosts refuse in too many ways.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Sequence

import _sandcore
from sandbox.backends.audit import ABI_AUDIT, Audit
from sandbox.backends.base import IsolationRefused, Question
from sandbox.backends.basis import Basis
from sandbox.backends.confinement import LinuxConfinement
from sandbox.backends.direct import LinuxDirect, check_direct
from sandbox.backends.enforceable import check_filters, check_host, check_owner, check_ownership
from sandbox.backends.ground import Ground, in_landlock, in_namespaces, unconfined
from sandbox.backends.guard import Guard
from sandbox.backends.journal import Journal
from sandbox.backends.launch import NamespacesFailed, start_helper
from sandbox.backends.moored import Mounts, WorkspaceBasis
from sandbox.backends.prepared import Prepared, PreparedRules, key_of
from sandbox.backends.refusals import Refusal, explain_refusal
from sandbox.backends.searched import resolve_searched
from sandbox.backends.temporary import Temporary
from sandbox.docks import Workspace, dock_of, docked
from sandbox.errors import Unenforceable
from sandbox.locks import ForkLock
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy, resolve

__all__ = ["LinuxBackend"]

_GUARDS_KEPT = 8  # for the next sandbox of the same directories; each may hold copies of files


class LinuxBackend:
    """Namespaces, Landlock and a seccomp filter around commands of a small helper process.

    Confinements with the same writable directories share a guard: to one of its own, what a
    command of another has just planted would be the state to return to. Those of one sandbox (an
    old one in which commands still run, and the one after it) share the temporary directories.
    """

    def __init__(self, probe: _sandcore.Probe | None = None, *, namespaces: bool = True) -> None:
        self._namespaces = namespaces
        self.probe = probe if probe is not None else _sandcore.probe()
        self._prepared = Prepared()
        self._journal = Journal()
        self._prepared_rules = PreparedRules(self.probe.landlock_abi)
        self._refusal: Refusal | None = None  # of namespaces; known when they were tried
        self._why: Refusal | None = None  # the latest one, also where it may be another next time
        self._lock = ForkLock()
        self._guards: weakref.WeakValueDictionary[tuple[object, ...], Guard] = (
            weakref.WeakValueDictionary()
        )
        self._latest: deque[Guard] = deque(maxlen=_GUARDS_KEPT)
        self._temporary: weakref.WeakValueDictionary[tuple[object, ...], Temporary] = (
            weakref.WeakValueDictionary()
        )

    def engine(self) -> _sandcore.Engine:
        """See ``Backend.engine``."""
        return _sandcore.Engine()

    def isolations(self, policy: SandboxPolicy) -> Sequence[str]:
        """See ``Backend.isolations``.

        SANDBOX_ISOLATION=landlock in the caller's environment leaves namespaces out.
        """
        if policy.unconfined:
            return ("none",)
        check_filters(self.probe)
        found = []
        wanted = self._namespaces and os.environ.get("SANDBOX_ISOLATION") != "landlock"
        if self._refusal is None and wanted:
            found.append("namespaces")
        try:
            check_host(policy, self.probe, self._refusal or self._why)
            found.append("landlock")
        except Unenforceable:
            if not found:
                raise
        return found

    def resolve(self, question: Question, isolation: str) -> ResolvedPolicy:
        """See ``Backend.resolve``; looks first after what the dead have left there."""
        found = self._resolve(question, isolation)
        if isolation != "none" and self._journal.settle(found):
            found = self._resolve(question, isolation)
        return found

    def _resolve(self, question: Question, isolation: str) -> ResolvedPolicy:
        if isolation == "none":
            return resolve(*question.asked)
        key = key_of(question)
        if isolation == "landlock":
            found = self._prepared_rules.resolved(key, question.tmp)
            if found is None:
                found = resolve(*question.asked)
                self._prepared_rules.note(key, found)
            return found
        found = self._prepared.resolved(key)
        if found is None:
            found = resolve_searched(question)
            found = dock_of(found) if question.docks else found
            self._prepared.keep(key, found, self._in_namespaces(found))
        return found

    def _in_namespaces(self, resolved: ResolvedPolicy) -> Ground:
        return in_namespaces(resolved, self.probe.landlock_abi, self.probe.release)

    def start(self, resolved: ResolvedPolicy, isolation: str) -> LinuxConfinement:
        """Confines; see ``Backend.start``."""
        if os.geteuid() == 0 and isolation != "none":
            check_ownership(resolved)
        audit = None
        if isolation == "namespaces":
            ground = self._prepared.ground(resolved) or self._in_namespaces(resolved)
        elif isolation == "landlock":
            rules, basis = self._prepared_rules.rules(resolved)
            abi = self.probe.landlock_abi
            audit = Audit.open() if abi >= ABI_AUDIT else None
            tell = audit is not None
            ground = in_landlock(resolved, rules, basis, abi, self._why, tell)
        else:
            ground = unconfined(resolved.policy)
        try:
            # It takes the helper as long to be there as what follows, up to where it is waited for.
            mounts = Mounts(resolved.dock) if resolved.dock else None
            helper = start_helper(ground.blob, ground.processes(resolved.policy.limits))
            roots = tuple(path for path in resolved.writable if path != resolved.tmp)
            looked_after = (roots, ground.guarded, ground.guarded_later)
            guard = None if isolation == "none" else self._guard(*looked_after)
            places = self._places(resolved.tmp)
            return LinuxConfinement(
                helper, resolved, ground, guard, places, audit, self._moor, mounts
            )
        except NamespacesFailed as failed:
            refusal = explain_refusal(failed.stage, failed.number)
            self._why = refusal
            if failed.stage == "namespaces":
                self._refusal = refusal  # so will it be the next time
            raise IsolationRefused(refusal.cause, refusal.mend) from None

    def _moor(
        self, base: ResolvedPolicy, found: Workspace, first: Ground, basis: WorkspaceBasis
    ) -> Guard:
        """Who looks after a workspace that was docked. Raises ``WorkspaceRefused``."""
        if os.geteuid() == 0:
            check_owner(found.path, found.which, True)
        if self._journal.has_notes_of(found.which):
            self._journal.settle(docked(base, found))
        guarded = (*found.absent, *first.guarded)
        near = found.is_near and not first.guarded and not first.guarded_later
        still = (basis.top, basis.rest, found.which) if near else None
        roots = (found.path, *(path for path in base.writable if path != base.tmp))
        return self._guard(roots, guarded, first.guarded_later, still)

    def direct(self, resolved: ResolvedPolicy) -> LinuxDirect:
        """See ``Backend.direct``."""
        check_direct(resolved, self.probe)
        if resolved.policy.unconfined:
            return LinuxDirect(resolved, None, Basis.nothing(), 0)
        if os.geteuid() == 0:
            check_ownership(resolved)
        rules, basis = self._prepared_rules.rules(resolved)
        return LinuxDirect(resolved, rules, basis, self.probe.landlock_abi)

    def _places(self, root: str) -> Temporary | None:
        """The temporary directories below a sandbox's own, for a policy that has one."""
        if not root:
            return None
        with self._lock.held:
            key = (os.getpid(), root)
            return self._temporary.setdefault(key, Temporary(root, _sandcore.Stamps))

    def _guard(
        self,
        roots: tuple[str, ...],
        guarded: tuple[str, ...],
        later: tuple[str, ...] = (),
        still: tuple[_sandcore.Stamps, bytes, os.stat_result] | None = None,
    ) -> Guard:
        """The guard of these directories. A forked copy of this process has its own.

        ``still``: all that is guarded are names right in the first of them that are missing while
        its state is this.
        """
        key = (os.getpid(), roots, guarded)
        guard = self._guards.get(key)
        if guard is None:
            if still is not None:
                made = Guard.of_absent(roots, guarded, _sandcore.Stamps, still[:2], still[2])
            else:
                made = Guard(roots, guarded, _sandcore.Stamps)
            with self._lock.held:
                guard = self._guards.setdefault(key, made)
                self._latest.append(guard)
        else:
            guard.look()
        if later:
            guard.extend(later)
        left = self._journal.take(roots)
        if left:
            guard.found(left)
        return guard
