"""The compiled core of sandcore (Linux): spawns and confines commands, without opinions.

Frozen surface for libraries: `compile_policy`, `Plan`, `spawn`, `wait`, `kill`. The rest serves the
`sandbox` package. Behaviour is documented on the functions themselves (`help(_sandcore.spawn)`).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, final

__all__ = [
    "ACCESS_DEVICE",
    "ACCESS_NAMES",
    "ACCESS_READ",
    "ACCESS_WRITE",
    "C_API",
    "FILTER_ALLOW_PTRACE",
    "FILTER_PRIVATE_IPC",
    "FILTER_SUPERVISED",
    "FILTER_UNIX_SCOPED",
    "HANDLE_MOUNTED",
    "HANDLE_NAMES",
    "HANDLE_READ",
    "HANDLE_SCOPES",
    "HANDLE_TCP",
    "HANDLE_UDP",
    "HANDLE_UNIX",
    "HANDLE_WRITE",
    "HELPER_PATH",
    "LAUNCHER_PATH",
    "MOUNT_ABSENT",
    "MOUNT_DEVICES",
    "MOUNT_DOCK",
    "MOUNT_HOLLOW",
    "MOUNT_LATER",
    "MOUNT_MAKE",
    "MOUNT_MASK",
    "MOUNT_OPTIONAL",
    "MOUNT_PIN",
    "MOUNT_PROC",
    "MOUNT_READ",
    "MOUNT_SCRATCH",
    "MOUNT_SOCKET",
    "MOUNT_WRITE",
    "NATIVE_ARCH",
    "NET_FULL",
    "NET_NONE",
    "Engine",
    "Helper",
    "Job",
    "Joint",
    "Lane",
    "LaneLost",
    "Notices",
    "Outcome",
    "Plan",
    "Policy",
    "Probe",
    "StageError",
    "Stamps",
    "Status",
    "Survey",
    "SyscallRow",
    "compile_filter",
    "compile_policy",
    "compile_workspace",
    "forget",
    "kill",
    "landlock_grants",
    "landlock_rights",
    "notes",
    "probe",
    "spawn",
    "syscall_rows",
    "wait",
]

ACCESS_DEVICE: Final[int]
ACCESS_NAMES: Final[int]
ACCESS_READ: Final[int]
ACCESS_WRITE: Final[int]
FILTER_ALLOW_PTRACE: Final[int]
FILTER_PRIVATE_IPC: Final[int]
FILTER_SUPERVISED: Final[int]
FILTER_UNIX_SCOPED: Final[int]
HANDLE_MOUNTED: Final[int]
HANDLE_NAMES: Final[int]
HANDLE_READ: Final[int]
HANDLE_SCOPES: Final[int]
HANDLE_TCP: Final[int]
HANDLE_UDP: Final[int]
HANDLE_UNIX: Final[int]
HANDLE_WRITE: Final[int]
HELPER_PATH: Final[bytes]
C_API: Final[object]
LAUNCHER_PATH: Final[bytes]
NATIVE_ARCH: Final[int]
MOUNT_ABSENT: Final[int]
MOUNT_DEVICES: Final[int]
MOUNT_HOLLOW: Final[int]
MOUNT_LATER: Final[int]
MOUNT_MAKE: Final[int]
MOUNT_MASK: Final[int]
MOUNT_OPTIONAL: Final[int]
MOUNT_PIN: Final[int]
MOUNT_PROC: Final[int]
MOUNT_READ: Final[int]
MOUNT_SCRATCH: Final[int]
MOUNT_SOCKET: Final[int]
MOUNT_DOCK: Final[int]
MOUNT_WRITE: Final[int]
NET_FULL: Final[int]
NET_NONE: Final[int]

class StageError(OSError):
    stage: str
    detail: int
    def __init__(self, stage: str, error: int, detail: int = -1) -> None: ...

class LaneLost(Exception): ...

class Probe(NamedTuple):
    landlock_abi: int
    landlock_errno: int
    landlock_errata: int
    seccomp_actions: int
    seccomp_filter: bool
    pidfd_open: bool
    close_range: bool
    userns: bool
    userns_errno: int
    pidfd_info_exit: bool
    release: str

class SyscallRow(NamedTuple):
    name: str
    number: int
    action: str
    rule: str
    reason: str

class Status(NamedTuple):
    status: int
    reaped: bool
    user: float
    system: float
    max_rss: int

class Outcome(NamedTuple):
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
    attempts: tuple[tuple[int, int, bytes], ...]
    attempts_missed: int
    refusals: tuple[()]

@final
class Policy:
    def __new__(cls, blob: bytes) -> Policy: ...
    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    @property
    def blob(self) -> bytes: ...
    @property
    def abi(self) -> int: ...
    @property
    def filter(self) -> list[tuple[int, int, int, int]]: ...
    @property
    def rules(self) -> list[tuple[bytes, int, int]]: ...
    @property
    def mounts(self) -> list[tuple[bytes, int, int, int, int]]: ...

@final
class Plan:
    def __new__(
        cls,
        argv: Iterable[bytes],
        env: Iterable[bytes],
        *,
        programs: Iterable[bytes] | None = None,
        policy: Policy | None = None,
        cwd: bytes | None = None,
        fds: Sequence[int] = (0, 1, 2),
        limits: Sequence[tuple[int, int, int]] = (),
        new_session: bool = True,
        umask: int | None = None,
        inline: bool = False,
        die_with_thread: bool = False,
        targets: Sequence[int] = (),
        process_group: int | None = None,
    ) -> Plan: ...
    @property
    def inline(self) -> bool: ...
    @property
    def policy(self) -> Policy | None: ...

@final
class Helper:
    def __new__(cls, policy: Policy, path: bytes, *, ahead: int | None = None) -> Helper: ...
    def settle(self) -> None: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def pid(self) -> int: ...
    @property
    def scoped(self) -> bool: ...
    @property
    def unwatched(self) -> int: ...
    def take_scratch(self) -> tuple[int, ...]: ...
    def close(self) -> bool: ...
    def dock(
        self,
        policy: Policy | None,
        *,
        device_major: int = 0,
        device_minor: int = 0,
        inode: int = 0,
        once: bool = False,
    ) -> None: ...
    def await_dock(self) -> int: ...
    def lane(self, processes: int = 0) -> Lane: ...

@final
class Joint:
    def __new__(cls, helper: Helper, processes: int = 0) -> Joint: ...
    @property
    def usable(self) -> bool: ...
    def spawn(self, plan: Plan) -> tuple[int, int]: ...
    def close(self) -> None: ...

@final
class Job:
    token: Any
    @property
    def lane(self) -> Lane: ...
    @property
    def at_once(self) -> bool: ...
    @property
    def outcome(self) -> Outcome | None: ...
    @property
    def lost(self) -> str | None: ...

@final
class Engine:
    def __new__(cls) -> Engine: ...
    def __len__(self) -> int: ...
    def fileno(self) -> int: ...
    def start(
        self,
        lane: Lane,
        programs: Sequence[bytes],
        argv: Sequence[bytes],
        env: bytes,
        env_count: int,
        cwd: bytes,
        *,
        limits: Sequence[tuple[int, int, int]] = (),
        input: bytes | None = None,
        stdin: int = -1,
        stdout: int = -1,
        stderr: int = -1,
        out_cap: int = 0,
        err_cap: int = 0,
        timeout: float | None = None,
        memory: int = 0,
        token: object = None,
    ) -> Job: ...
    def take(self, timeout: float | None = 0.0) -> list[Job]: ...
    def kill(self, job: Job) -> None: ...
    def close(self) -> None: ...

@final
class Lane:
    def __new__(cls) -> Lane: ...
    @property
    def helper(self) -> Helper: ...
    def fileno(self) -> int: ...
    @property
    def scoped(self) -> bool: ...
    @property
    def pid(self) -> int: ...
    @property
    def usable(self) -> bool: ...
    def close(self) -> None: ...
    def run(
        self,
        programs: Sequence[bytes],
        argv: Sequence[bytes],
        env: bytes,
        env_count: int,
        cwd: bytes,
        *,
        limits: Sequence[tuple[int, int, int]] = (),
        input: bytes | None = None,
        stdin: int = -1,
        stdout: int = -1,
        stderr: int = -1,
        out_cap: int = 0,
        err_cap: int = 0,
        timeout: float | None = None,
        keep_session: bool = False,
        memory: int = 0,
    ) -> Outcome: ...
    def start(
        self,
        programs: Sequence[bytes],
        argv: Sequence[bytes],
        env: bytes,
        env_count: int,
        cwd: bytes,
        *,
        fds: Sequence[int],
        limits: Sequence[tuple[int, int, int]] = (),
        timeout: float | None = None,
        terminal: bool = False,
        memory: int = 0,
    ) -> int: ...
    def wait(self, timeout: float | None = None) -> Outcome | None: ...
    def file(
        self, what: str, path: bytes, *, directory: int = -1, mode: int = 0, follow: bool = True
    ) -> int: ...
    def kill(self) -> None: ...
    def signal(self, number: int) -> None: ...

@final
class Survey:
    def __new__(cls, names: Iterable[bytes], passed: Iterable[bytes]) -> Survey: ...
    def of(self, path: bytes) -> tuple[tuple[int, ...], bool]: ...

@final
class Stamps:
    SIZE: int
    def __new__(cls, paths: Iterable[bytes], identities: Iterable[bytes] = ()) -> Stamps: ...
    def __len__(self) -> int: ...
    def take(self) -> bytes: ...
    def same(self, state: bytes) -> bool: ...
    def settled(self, state: bytes) -> bool: ...

@final
class Notices:
    def __new__(cls) -> Notices: ...
    def watch(self, path: bytes, *, contents: bool = False) -> int: ...
    def forget(self, number: int) -> None: ...
    def take(self) -> Sequence[tuple[int, bool]]: ...

def notes(head: bytes) -> list[tuple[int, bytes]]: ...
def forget(key: int) -> bool: ...
def probe() -> Probe: ...
def syscall_rows(*, network: int, flags: int = 0, arch: int = 0) -> list[SyscallRow]: ...
def landlock_rights(abi: int, handle: int) -> tuple[list[str], list[str], list[str]]: ...
def landlock_grants(abi: int, access: int, directory: bool, handle: int) -> list[str]: ...
def compile_filter(*, network: int, flags: int = 0, arch: int = 0) -> bytes: ...
def compile_workspace(path: bytes, names: tuple[bytes, ...]) -> Policy: ...
def compile_policy(
    rules: Iterable[tuple[bytes, int, bool]] = (),
    *,
    abi: int = 0,
    handle: int = 0,
    network: int | None = None,
    filter_flags: int = 0,
    extra_filter: bytes = b"",
    confined: bool = True,
    mounts: Iterable[tuple[bytes, int, int, int, int]] = (),
    own_network: bool = False,
    read_only: bool = False,
    tell: bool = False,
) -> Policy: ...
def spawn(plan: Plan) -> tuple[int, int]: ...
def wait(pidfd: int, timeout: float | None = None) -> Status | None: ...
def kill(pid: int, pidfd: int) -> None: ...
