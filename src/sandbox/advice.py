"""What the facts about a host mean for confining commands: findings, each with the line that mends.

One small function per topic takes the facts and returns its findings; `findings` runs them all.
Levels: `fail` commands cannot be confined here; `warn` they can, and something is weaker or undone
by it; `info` worth knowing; `ok`. Pure: the same facts give the same findings.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sandbox.host import DISTRIBUTION, PACKAGE, HostFacts, Probe
from sandbox.mends import (
    apparmor_line,
    container_flag,
    kernel_version,
    newer_kernel,
    set_boot_parameter,
    set_sysctl,
)

Level = Literal["ok", "info", "warn", "fail"]

# Landlock cannot stop truncate(2) before ABI 3; before 6 it has no scopes for signals and sockets.
LANDLOCK_NEEDED = 3
LANDLOCK_SCOPES = 6
MACHINES = ("x86_64", "aarch64")

# Groups whose members reach past any file rule; each with what it opens.
GROUPS = {
    "docker": "whoever reaches the Docker socket is root on this host",
    "podman": "whoever reaches the system's Podman socket is root on this host",
    "lxd": "whoever reaches the LXD socket is root on this host",
    "incus-admin": "whoever reaches the Incus socket is root on this host",
    "libvirt": "a virtual machine of the system's libvirt can be given the host's disks",
    "disk": "the raw disks can be read, and with them every file that a policy denies",
    "kmem": "kernel memory can be read",
    "shadow": "the password hashes can be read",
    "input": "key presses of every session can be read from /dev/input",
    "kvm": "/dev/kvm is a large piece of kernel that a command can attack",
}
# These are reached through Unix sockets, which a confined command cannot connect to.
BY_SOCKET = ("docker", "podman", "lxd", "incus-admin", "libvirt")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about this host: what it is, why it matters, and the line that mends it ("")."""

    id: str
    level: Level
    what: str
    why: str = ""
    mend: str = ""


def platform(facts: HostFacts) -> list[Finding]:
    """Whether there is a backend for this operating system and machine at all."""
    found = []
    if facts.system == "Darwin":
        return seatbelt(facts)
    if facts.system != "Linux":
        why = "there are backends for Linux (Landlock and seccomp) and macOS (Seatbelt)"
        found.append(Finding("platform", "fail", f"no sandbox for {facts.system}", why))
    elif facts.machine not in MACHINES:
        why = f"the system call table knows {' and '.join(MACHINES)}"
        found.append(Finding("platform", "fail", f"no filter for {facts.machine}", why))
    elif facts.probe is None:
        what = "the compiled core is missing"
        found.append(Finding("core", "fail", what, "it does the confining", "pip install ."))
    else:
        what = f"{facts.distribution or facts.system}, Linux {facts.release}, {facts.machine}"
        found.append(Finding("platform", "ok", what))
    return found


def seatbelt(facts: HostFacts) -> list[Finding]:
    """What macOS confines with, and what Apple's word about it means for who relies on it."""
    what = f"{facts.distribution or 'macOS'}, Darwin {facts.release}, {facts.machine}"
    found = [Finding("platform", "ok", what)]
    if not facts.sandbox_exec:
        why = "it does the confining, and nothing else in macOS does that for a command line"
        found.append(Finding("seatbelt", "fail", "no /usr/bin/sandbox-exec", why))
    elif facts.inside:
        what = f"already inside a sandbox ({facts.inside})"
        why = "macOS takes no second profile: no command can be confined from in here"
        found.append(Finding("seatbelt", "fail", what, why, "run it outside of that sandbox"))
    else:
        found.append(Finding("seatbelt", "ok", "Seatbelt, by /usr/bin/sandbox-exec"))
    what = "Apple calls sandbox-exec deprecated"
    why = (
        "it has done so since 10.12 and ships it still, as browsers and agents use the same"
        " language; a release without it, or that reads a profile otherwise, stops every command"
        " here: each sandbox tries its profile first, and nothing runs unconfined"
    )
    mend = "sandbox doctor   # after each upgrade of macOS"
    found.append(Finding("deprecation", "info", what, why, mend))
    if not facts.psutil:
        what, why = "no psutil", "it finds the processes of a command, to end them"
        found.append(Finding("psutil", "fail", what, why, "pip install psutil"))
    return found


def no_landlock(facts: HostFacts, probe: Probe) -> Finding:
    """Why there is no Landlock, from the most to the least certain cause."""
    name = errno.errorcode.get(probe.landlock_errno, "unknown")
    why = f"writes and reads cannot be confined; the kernel says {name}"
    if facts.wsl == 1:
        what, mend = "WSL 1 has no Landlock", "wsl --set-version NAME 2   # in Windows"
    elif facts.filtered and probe.landlock_errno in (errno.ENOSYS, errno.EPERM, errno.EACCES):
        where = f"the filter of this {facts.container} container" if facts.container else "a filter"
        what, mend = f"Landlock is hidden by {where}", container_flag(facts)
    elif probe.landlock_errno == errno.EOPNOTSUPP or (
        facts.landlock_built and "landlock" not in (facts.lsms or ("landlock",))
    ):
        what, mend = "Landlock is built in and not enabled at boot", set_boot_parameter(facts)
    elif kernel_version(facts.release) < (5, 13):
        what, mend = f"Linux {facts.release} has no Landlock (5.13 brought it)", newer_kernel(facts)
    else:
        what = f"Linux {facts.release} was built without Landlock"
        mend = "boot a kernel that has CONFIG_SECURITY_LANDLOCK=y and landlock in CONFIG_LSM"
    return Finding("landlock", "fail", what, why, mend)


def landlock(facts: HostFacts) -> list[Finding]:
    """Landlock: there, new enough, whole."""
    probe = facts.probe
    if probe is None:
        return []
    abi = probe.landlock_abi
    if abi < 1:
        return [no_landlock(facts, probe)]
    what = f"Landlock ABI {abi}"
    if abi < LANDLOCK_NEEDED:
        why = (
            "it does not mediate truncate(2), so that a command could empty any file:"
            f" ABI {LANDLOCK_NEEDED} is needed"
        )
        return [Finding("landlock", "fail", what, why, newer_kernel(facts))]
    if abi < LANDLOCK_SCOPES:
        why = (
            "no scopes (ABI 6): signals to this user's other processes and abstract sockets are"
            " not stopped by it, and the tree cannot be ended through it"
        )
        return [Finding("landlock", "warn", what, why, newer_kernel(facts))]
    if ".el9" in facts.release:
        why = "such kernels have claimed ABI 6 without the signal scope: it is tried at start"
        return [Finding("landlock", "warn", what, why)]
    return [Finding("landlock", "ok", what)]


def kernel_calls(facts: HostFacts) -> list[Finding]:
    """Seccomp filters, and the calls that a spawn relies on."""
    probe = facts.probe
    if probe is None:
        return []
    old = kernel_version(facts.release) < (5, 9)
    mend = newer_kernel(facts) if old else container_flag(facts)
    found = []
    if not probe.seccomp_filter:
        why = "network and dangerous system calls cannot be refused"
        need = "boot a kernel that has CONFIG_SECCOMP_FILTER=y"
        found.append(Finding("seccomp", "fail", "no seccomp filters", why, need))
    else:
        found.append(Finding("seccomp", "ok", "seccomp filters"))
    if not probe.pidfd_open:
        why = "a command could not be waited for and ended without a race"
        found.append(Finding("pidfd", "fail", "no pidfd_open", why, mend))
    if not probe.close_range:
        why = "the caller's open files could not be kept from the command"
        found.append(Finding("close-range", "fail", "no close_range", why, mend))
    return found


def user_namespaces(facts: HostFacts) -> list[Finding]:
    """User namespaces: what `namespaces` isolation needs; `landlock` does without."""
    probe = facts.probe
    if probe is None:
        return []
    restricted = facts.sysctl("kernel.apparmor_restrict_unprivileged_userns") == 1
    # Ubuntu lets the namespace be made and takes its capabilities away: a probe sees no error.
    stripped = restricted and facts.uid != 0 and facts.apparmor_label in (None, "unconfined")
    if probe.userns and not stripped:
        return [Finding("userns", "ok", "user namespaces")]
    why = "needed only for `namespaces` isolation; `landlock` isolation does without"
    if facts.sysctl("user.max_user_namespaces") == 0:
        what, mend = "user.max_user_namespaces is 0", set_sysctl("user.max_user_namespaces", 15000)
    elif facts.sysctl("kernel.unprivileged_userns_clone") == 0 and facts.uid != 0:
        what = "unprivileged user namespaces are off"
        mend = set_sysctl("kernel.unprivileged_userns_clone", 1)
    elif stripped:
        what, mend = "AppArmor restricts unprivileged user namespaces", apparmor_line(facts)
    elif facts.filtered or facts.container:
        whose = f"sandbox ({facts.inside})" if facts.inside else facts.container or "process"
        what, mend = f"the filter of this {whose} refuses namespaces", container_flag(facts)
    else:
        name = errno.errorcode.get(probe.userns_errno, "unknown")
        what, mend = f"no user namespaces ({name})", "boot a kernel that has CONFIG_USER_NS=y"
    return [Finding("userns", "info", what, why, mend)]


def groups(facts: HostFacts) -> list[Finding]:
    """Groups whose members can undo a sandbox."""
    found = []
    for name in facts.groups:
        if name not in GROUPS:
            continue
        why = GROUPS[name]
        if name in BY_SOCKET:
            why += "; a confined command cannot connect to it, one with full access can"
        mend = f"sudo gpasswd --delete $USER {name}   # then log in again"
        found.append(Finding(f"group-{name}", "warn", f"member of the group {name}", why, mend))
    if facts.uid == 0:
        why = "root owns the system's files and process limits do not bind it: use an ordinary user"
        found.append(Finding("root", "info", "running as root", why))
    return found


def kernel_settings(facts: HostFacts) -> list[Finding]:
    """Settings that matter where a layer of the sandbox is missing."""
    found = []
    if facts.system == "Linux" and (facts.sysctl("kernel.yama.ptrace_scope") or 0) == 0:
        has = "kernel.yama.ptrace_scope" in facts.sysctls
        why = "only Landlock keeps a command from tracing this user's other processes"
        mend = set_sysctl("kernel.yama.ptrace_scope", 1) if has else ""
        found.append(Finding("yama", "info", f"Yama is {'off' if has else 'not there'}", why, mend))
    if facts.sysctl("dev.tty.legacy_tiocsti") == 1:
        why = "only the filter keeps a command from typing into its terminal (TIOCSTI)"
        mend = set_sysctl("dev.tty.legacy_tiocsti", 0)
        found.append(Finding("tiocsti", "info", "legacy TIOCSTI is on", why, mend))
    pattern = facts.sysctls.get("kernel.core_pattern", "")
    if pattern.startswith("|"):
        program = (pattern[1:].split() or [""])[0]
        why = (
            f"a crash under a core limit above 0 (the default) starts {program} outside, which may"
            " keep the command's memory"
        )
        mend = "sudo sysctl -w kernel.core_pattern=core"
        found.append(Finding("core-pattern", "info", "core dumps go to a program", why, mend))
    return found


def surroundings(facts: HostFacts) -> list[Finding]:
    """What this process itself already runs in."""
    found = []
    if facts.inside and facts.system == "Linux":
        what = f"already inside a sandbox ({facts.inside})"
        why = "what it confines cannot be widened from here; Landlock takes 16 layers in all"
        found.append(Finding("nested", "info", what, why))
    if facts.container:
        what = f"inside a container ({facts.container})"
        why = "its masked /proc leaves `landlock` as the isolation that works here"
        found.append(Finding("container", "info", what, why if facts.masked_proc else ""))
    elif facts.filtered and not facts.inside:
        why = "something has confined this process already; calls may be missing"
        found.append(Finding("filtered", "info", "behind a seccomp filter", why))
    if facts.wsl:
        found.append(Finding("wsl", "info", f"WSL {facts.wsl}"))
    if facts.wsl_interop:
        what = "Windows programs can be started from here"
        why = "they run outside any confinement of Linux; only the filter on sockets stops them"
        mend = "printf '[interop]\\nenabled=false\\n' | sudo tee -a /etc/wsl.conf"
        found.append(Finding("wsl-interop", "warn", what, why, mend))
    return found


def names(facts: HostFacts) -> list[Finding]:
    """Other things that are called `sandbox`."""
    found = []
    for owner in facts.owners:
        if owner.lower().replace("_", "-") != DISTRIBUTION:
            what = f"the distribution {owner} installs a package `{PACKAGE}` too"
            why = "their files overwrite each other: `import sandbox` may be either"
            mend = f"pip uninstall -y {owner} && pip install --force-reinstall {DISTRIBUTION}"
            found.append(Finding("other-package", "warn", what, why, mend))
    if facts.command and facts.own_command and facts.command != facts.own_command:
        what = f"`{PACKAGE}` on PATH is {facts.command}"
        why = f"this one is {facts.own_command} (SELinux has a command of that name, too)"
        mend = f"export PATH={Path(facts.own_command).parent}:$PATH"
        found.append(Finding("other-command", "warn", what, why, mend))
    return found


TOPICS = (
    platform,
    landlock,
    kernel_calls,
    user_namespaces,
    groups,
    kernel_settings,
    surroundings,
    names,
)


def findings(facts: HostFacts) -> tuple[Finding, ...]:
    """All that there is to say about a host, in the order of the topics."""
    return tuple(found for topic in TOPICS for found in topic(facts))


def confinable(found: tuple[Finding, ...]) -> bool:
    """Whether commands can be confined on the host of these findings."""
    return all(finding.level != "fail" for finding in found)
