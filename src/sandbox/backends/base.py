"""What every way of confining offers to the layer above.

A backend turns a resolved policy into a *confinement*: something live that runs commands under it
until it is closed. The layer above knows policies, environments and results, a confinement knows
the operating system; between them go a ``Request`` and an ``Outcome``, made of bytes and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeVar

from sandbox.backends.jobs import Engine, Job
from sandbox.denial import Denial
from sandbox.docks import Workspace
from sandbox.limits import Limits
from sandbox.policy import SandboxPolicy
from sandbox.resolve import ResolvedPolicy
from sandbox.result import Enforcement

__all__ = [
    "Backend",
    "Confinement",
    "ConfinementLost",
    "Direct",
    "FileKind",
    "IsolationRefused",
    "Joint",
    "Order",
    "Outcome",
    "Question",
    "Request",
    "Running",
    "Seat",
    "StartFailed",
    "Told",
]

T = TypeVar("T")

# To fstat; as ``directory`` of later ones; a directory's names; regular files, old or new; changes.
FileKind = Literal[
    "look", "place", "list", "read", "write", "append", "create", "make", "remove", "clear"
]


class IsolationRefused(Exception):
    """A host does not give an isolation that looked possible; a weaker one may do."""

    def __init__(self, cause: str, mend: str) -> None:
        self.cause, self.mend = cause, mend
        super().__init__(cause)


class ConfinementLost(Exception):
    """The confinement ended under a command, or could not be reached any more."""

    def __init__(self, cause: str, denials: tuple[Denial, ...] = ()) -> None:
        self.denials = denials
        super().__init__(cause)


@dataclass(slots=True)
class Request:
    """One command, ready for the operating system.

    ``programs`` are candidates for execve in the order of PATH; ``env`` is a block of ``env_count``
    NUL-terminated items; ``limits`` are (resource, soft, hard), and ``memory`` bytes of its whole
    tree, 0 for any number, both as the seat has them. ``stdin`` is a fd, or -1 for nothing to read;
    ``stdout`` and ``stderr`` are fds, or -1 to capture at most ``cap`` bytes. ``timeout`` is in
    seconds.
    """

    programs: Sequence[bytes]
    argv: Sequence[bytes]
    env: bytes
    env_count: int
    cwd: bytes
    limits: Sequence[tuple[int, int, int]]
    memory: int
    cap: int
    timeout: float | None
    input: bytes | None = None
    stdin: int = -1
    stdout: int = -1
    stderr: int = -1
    terminal: bool = False


class Told(NamedTuple):
    """An access that the kernel's audit tells of as refused.

    ``rights`` were missing, in the kernel's words; ``what`` is a path, a port, a process; "" where
    it is not said.
    """

    rights: tuple[str, ...]
    what: str


class Outcome(NamedTuple):
    """What became of a request.

    ``started`` is False when ``stage`` failed with ``errno`` (``detail``: see the core), and then
    nothing ran. ``status`` is a wait status. ``stdout`` holds all, or the first ``stdout_head``
    bytes and the last ones where ``stdout_total`` is more than its length. ``swept``: processes
    that outlived the command and were ended; ``drained_early``: its output was still open then.
    ``over_memory``: its tree was ended because it had too much.
    ``attempts``: connects to what is outside of the sandbox: (errno, kind of socket, address as the
    kernel has it) each; ``attempts_missed``: how many more. ``refusals``: what the kernel tells.
    ``usage``: seconds of user and system time, KiB at the largest, and six counters.
    """

    started: bool
    status: int
    timed_out: bool
    stage: str
    errno: int
    detail: int
    stdout: bytes
    stdout_head: int
    stdout_total: int
    stderr: bytes
    stderr_head: int
    stderr_total: int
    swept: int
    drained_early: bool
    over_memory: bool
    usage: tuple[float, float, int, int, int, int, int, int, int]
    duration: float
    attempts: tuple[tuple[int, int, bytes], ...] = ()
    attempts_missed: int = 0
    refusals: tuple[Told, ...] = ()


class Question(NamedTuple):
    """A policy and whose it is; ``docks``: its workspace is a directory of such."""

    policy: SandboxPolicy
    workspace: str | None
    home: str
    tmp: str
    homes: tuple[str, ...]
    place: str
    docks: bool = False

    @property
    def asked(self) -> tuple[SandboxPolicy, str | None, str, str, tuple[str, ...], str]:
        """What ``resolve`` takes."""
        return self.policy, self.workspace, self.home, self.tmp, self.homes, self.place


class Running(Protocol):
    """A command that goes on in a seat."""

    pid: int

    def wait(self, timeout: float | None) -> tuple[Outcome, tuple[Denial, ...]] | None:
        """What came of it; None when it is not over after so many seconds.

        The same each time, for one thread at a time. Raises ``ConfinementLost``.
        """

    def fileno(self) -> int:
        """A fd that is readable when it may be over."""

    def kill(self) -> None:
        """Ends it and all below it. Does not wait. Not to be called after its end."""

    def signal(self, number: int) -> None:
        """Sends it a signal. Not to be called after its end."""


class Seat(Protocol):
    """A place for one command at a time, with a temporary directory of its own.

    ``rlimits`` and ``memory``: the limits that it was taken with, for the request; ``enforcement``
    says which of them are enforced less than they say.
    """

    tmp: str
    enforcement: Enforcement
    rlimits: Sequence[tuple[int, int, int]]
    memory: int

    def run(self, request: Request) -> tuple[Outcome, tuple[Denial, ...]]:
        """Runs a command to the end of its tree. Raises ``ConfinementLost``."""

    def submit(self, engine: Engine, request: Request, token: object) -> Job:
        """Starts a command that an engine runs. ``settle`` must follow when it is over.

        Raises ``ConfinementLost``.
        """

    def settle(self, job: Job) -> tuple[Outcome, tuple[Denial, ...]]:
        """What came of it, as of ``run``."""

    def start(self, request: Request, *, owns_terminal: bool) -> Running:
        """Starts a command that goes on; one that did not start is over at once.

        All three streams are fds; ``owns_terminal``: they are a terminal that becomes its own.
        Raises ``ConfinementLost``.
        """

    def file(
        self,
        what: FileKind,
        path: bytes,
        *,
        directory: int = -1,
        mode: int = 0,
        follow: bool = True,
    ) -> int:
        """Reaches one file as a command would, while none runs here: a fd, or -1 where none comes.

        ``path`` is absolute, or one name in the ``directory``. Raises OSError without the path, and
        ``ConfinementLost``.
        """

    def watched(self, act: Callable[[], T]) -> tuple[T, tuple[Denial, ...]]:
        """Does something that may write, as a command: what it planted or changed is put back.

        Raises what it raises.
        """

    def leave(self) -> None:
        """Gives the place back."""


class Confinement(Protocol):
    """A policy that is being enforced."""

    enforcement: Enforcement

    def is_current(self) -> bool:
        """False when the host has changed so that it must be made anew. Cheap."""

    def seat(self, limits: Limits) -> Seat:
        """A free place for a command with these limits; made if there is none.

        Raises what starting raises.
        """

    def joint(self) -> Joint:
        """Where children of the caller's own join; made if there is none.

        Raises ``Unenforceable``, ``StartError`` and ``ConfinementLost``.
        """

    @property
    def closed(self) -> bool:
        """Whether it was."""

    @property
    def busy(self) -> bool:
        """Whether a seat is taken."""

    @property
    def lying(self) -> Workspace | None:
        """The workspace that lies in the dock, or is on its way."""

    def dock(self, base: ResolvedPolicy, workspace: str, once: bool = False) -> None:
        """Another workspace (empty: none) in the place of the last, of which nothing is left.

        ``base``: the policy without one. ``once``: for one command, then ``clear``. Raises
        ``ConfinementLost``, ``InvalidArgument`` while a command runs, and ``PolicyError`` for what
        cannot be one, or not here; then there is none. ``settle`` says what is found out later.
        """

    def settle(self) -> None:
        """Waits until what was docked is there. Raises as ``dock``. Commands wait by themselves."""

    def clear(self) -> None:
        """Removes what commands left, and what was docked ``once``. Raises ``ConfinementLost``."""

    def retire(self) -> None:
        """Takes no further command: it ends with the last one that runs in it."""

    def close(self) -> None:
        """Ends everything that runs in it. Idempotent."""


class StartFailed(Exception):
    """A child of the caller's own did not become a command: the stage, its errno, and on what."""

    def __init__(self, stage: str, errno: int, detail: int) -> None:
        self.stage, self.errno, self.detail = stage, errno, detail
        super().__init__(stage, errno, detail)


class Order(NamedTuple):
    """A child of the caller's own, complete.

    ``fds[i]`` becomes ``targets[i]`` in it; ``group``: as ``process_group`` of ``subprocess``.
    """

    programs: Sequence[bytes]
    argv: Sequence[bytes]
    env: Sequence[bytes]
    cwd: bytes | None
    fds: Sequence[int]
    targets: Sequence[int]
    new_session: bool
    group: int | None
    umask: int | None


class Direct(Protocol):
    """A policy that is being enforced on children of the caller's own."""

    enforcement: Enforcement

    def is_current(self) -> bool:
        """As ``Confinement.is_current``."""

    def spawn(self, order: Order) -> int:
        """Starts one; its pid, which is the caller's to wait for.

        Raises ``StartFailed``, ``ConfinementLost``, and ``ValueError`` for a NUL.
        """


class Joint(Direct, Protocol):
    """A live confinement, as children of the caller's own are in it; they end with that."""

    tmp: str

    def close(self) -> None:
        """Ends all that has joined; the children are there to be waited for. Idempotent."""


class Backend(Protocol):
    """A way to confine on this machine."""

    def engine(self) -> Engine:
        """A new one. Raises ``OSError`` when there is no fd for it."""

    def isolations(self, policy: SandboxPolicy) -> Sequence[str]:
        """The isolations that may be had for a policy, the strongest first.

        Raises ``Unenforceable`` when the host has none that the policy accepts.
        """

    def resolve(self, question: Question, isolation: str) -> ResolvedPolicy:
        """The policy with real paths. Raises what ``resolve`` raises."""

    def start(self, resolved: ResolvedPolicy, isolation: str) -> Confinement:
        """Confines. Raises ``Unenforceable`` or ``Unavailable`` before anything runs.

        ``IsolationRefused``: try the next one, for which the policy may have to be resolved anew.
        """

    def direct(self, resolved: ResolvedPolicy) -> Direct:
        """Confines children of the caller's own, for a policy resolved for ``landlock`` or none.

        Raises ``Unenforceable`` for what that cannot give.
        """
