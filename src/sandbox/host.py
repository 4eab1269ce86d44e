"""Facts about this host that decide, or explain, what a sandbox can enforce here.

`gather` reads them once through a `Reader`; `HostFacts` is a frozen value; `advice.findings` turns
it into what `sandbox doctor` says. Nothing here confines anything or changes the host, and what
cannot be read is None (unknown), never a guess.
"""

from __future__ import annotations

import grp
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata, util
from pathlib import Path
from typing import Protocol

DISTRIBUTION = "sandcore"
PACKAGE = "sandbox"
SANDBOX_EXEC = "/usr/bin/sandbox-exec"  # that one only, never one of PATH

SYSCTLS = (
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.unprivileged_userns_clone",
    "user.max_user_namespaces",
    "kernel.yama.ptrace_scope",
    "dev.tty.legacy_tiocsti",
    "kernel.core_pattern",
)

# Files that a container runtime leaves, and words that it writes into PID 1's cgroup path.
CONTAINER_FILES = (("/run/.containerenv", "podman"), ("/.dockerenv", "docker"))
CONTAINER_CGROUPS = ("kubepods", "docker", "libpod", "lxc", "containerd")


class Probe(Protocol):
    """What the compiled core found by trying."""

    @property
    def landlock_abi(self) -> int:
        """The Landlock ABI; 0 when there is none."""

    @property
    def landlock_errno(self) -> int:
        """Why there is none (an errno), or 0."""

    @property
    def seccomp_filter(self) -> bool:
        """Whether filters can be installed."""

    @property
    def pidfd_open(self) -> bool:
        """Whether processes can be held by fd (Linux 5.3)."""

    @property
    def close_range(self) -> bool:
        """Whether fds can be closed by range (Linux 5.9)."""

    @property
    def userns(self) -> bool:
        """Whether this user could make a user namespace."""

    @property
    def userns_errno(self) -> int:
        """Why not (an errno), or 0."""


def read_text(path: str) -> str | None:
    """The text of a small file, or None when it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def group_names() -> tuple[str, ...]:
    """The names of the groups of this process, sorted."""
    names = set()
    for gid in {*os.getgroups(), os.getegid()}:
        try:
            names.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            names.add(str(gid))
    return tuple(sorted(names))


def package_owners() -> tuple[str, ...]:
    """The distributions that install a top-level package of our name, sorted."""
    return tuple(sorted(set(metadata.packages_distributions().get(PACKAGE, ()))))


def helper_path() -> str | None:
    """Where the helper program is, whether or not it was built; the core is not imported."""
    spec = util.find_spec("_sandcore")
    if spec is None or spec.origin is None:
        return None
    return str(Path(spec.origin).parent / "sandcore-helper")


@dataclass(frozen=True, slots=True)
class Reader:
    """Where facts come from; each can be replaced in tests."""

    text: Callable[[str], str | None] = read_text
    exists: Callable[[str], bool] = os.path.exists
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    uid: Callable[[], int] = os.geteuid
    groups: Callable[[], tuple[str, ...]] = group_names
    owners: Callable[[], tuple[str, ...]] = package_owners
    which: Callable[[str], str | None] = shutil.which
    helper: Callable[[], str | None] = helper_path
    installed: Callable[[str], bool] = lambda name: util.find_spec(name) is not None
    system: Callable[[], str] = platform.system
    machine: Callable[[], str] = platform.machine
    release: Callable[[], str] = platform.release


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What is known of a host. None means: not known, or not there."""

    system: str = "Linux"
    machine: str = "x86_64"
    release: str = ""
    distribution: str = ""
    uid: int = 1000
    groups: tuple[str, ...] = ()
    probe: Probe | None = None
    lsms: tuple[str, ...] | None = None
    landlock_built: bool | None = None
    sysctls: Mapping[str, str] = field(default_factory=dict)
    apparmor_label: str | None = None
    container: str | None = None
    masked_proc: bool = False
    wsl: int | None = None
    wsl_interop: bool = False
    filtered: bool = False
    inside: str | None = None
    owners: tuple[str, ...] = (DISTRIBUTION,)
    command: str | None = None
    own_command: str | None = None
    helper: str | None = None
    sandbox_exec: bool = False
    psutil: bool = False

    def sysctl(self, name: str) -> int | None:
        """A sysctl's number, or None when it is unknown or no number."""
        try:
            return int(self.sysctls[name])
        except (KeyError, ValueError):
            return None


def os_release(text: str | None) -> str:
    """The distribution's name for people."""
    for line in (text or "").splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip().strip("\"'")
    return ""


def mac_version(reader: Reader) -> str:
    """``macOS 15.1``, as Apple's own file says; empty elsewhere."""
    text = reader.text("/System/Library/CoreServices/SystemVersion.plist") or ""
    found = re.search(r"<key>ProductVersion</key>\s*<string>([\d.]+)</string>", text)
    return f"macOS {found[1]}" if found is not None else ""


def container_of(reader: Reader) -> str | None:
    """Which kind of container this is, by the traces that runtimes leave."""
    if "KUBERNETES_SERVICE_HOST" in reader.environ:
        return "kubernetes"
    for path, name in CONTAINER_FILES:
        if reader.exists(path):
            return name
    named = (reader.text("/run/systemd/container") or reader.environ.get("container", "")).strip()
    if named:
        return named
    cgroup = reader.text("/proc/1/cgroup") or ""
    return next((word for word in CONTAINER_CGROUPS if word in cgroup), None)


def masks_proc(mounts: str | None) -> bool:
    """Whether something is mounted over parts of /proc: then the kernel gives no new /proc."""
    points = [fields[4] for line in (mounts or "").splitlines() if len(fields := line.split()) > 4]
    return any(p.startswith("/proc/") and p != "/proc/sys/fs/binfmt_misc" for p in points)


def wsl_of(version: str | None) -> int | None:
    """1 or 2 under the Windows Subsystem for Linux."""
    text = (version or "").lower()
    if "microsoft" not in text:
        return None
    return 2 if "wsl2" in text or "microsoft-standard" in text else 1


def landlock_config(text: str | None) -> bool | None:
    """Whether the kernel's configuration has Landlock built in."""
    if text is None:
        return None
    return "CONFIG_SECURITY_LANDLOCK=y" in text.splitlines()


def own_command() -> str:
    """Where our command would be: beside the interpreter that runs this."""
    return str(Path(sys.executable).parent / PACKAGE)


def gather(probe: Probe | None, reader: Reader | None = None) -> HostFacts:
    """Reads the facts about this host.

    probe: what the core found; None where there is no core (macOS, an unbuilt checkout).
    reader: where to read from; the real host by default.
    """
    reader = reader or Reader()
    release = reader.release()
    lsms = reader.text("/sys/kernel/security/lsm")
    status = reader.text("/proc/self/status") or ""
    label = reader.text("/proc/self/attr/apparmor/current")
    values = {name: reader.text("/proc/sys/" + name.replace(".", "/")) for name in SYSCTLS}
    return HostFacts(
        system=reader.system(),
        machine=reader.machine(),
        release=release,
        distribution=os_release(reader.text("/etc/os-release")) or mac_version(reader),
        uid=reader.uid(),
        groups=reader.groups(),
        probe=probe,
        lsms=None if lsms is None else tuple(lsms.strip().split(",")),
        landlock_built=landlock_config(reader.text(f"/boot/config-{release}")),
        sysctls={name: text.strip() for name, text in values.items() if text is not None},
        apparmor_label=None if label is None else label.strip(" \n\0"),
        container=container_of(reader),
        masked_proc=masks_proc(reader.text("/proc/self/mountinfo")),
        wsl=wsl_of(reader.text("/proc/version")),
        wsl_interop=reader.exists("/proc/sys/fs/binfmt_misc/WSLInterop"),
        filtered="Seccomp:\t2" in status,
        inside=reader.environ.get("SANDBOX"),
        owners=reader.owners(),
        command=reader.which(PACKAGE),
        own_command=own_command(),
        helper=reader.helper(),
        sandbox_exec=reader.exists(SANDBOX_EXEC),
        psutil=reader.installed("psutil"),
    )
