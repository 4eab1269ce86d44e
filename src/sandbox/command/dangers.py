"""Forms of commands that destroy, give away, or need more than a sandbox has.

The table is the truth. Here the name of a program is enough, wherever it lies, an abbreviated
option counts, and so does what only may be an option: to ask once too often is the smaller mistake.
It is no wall: what a program does can be written in a thousand ways. The sandbox is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from sandbox.command.options import letters_of, names
from sandbox.command.verdict import Reason
from sandbox.secrets import SECRETS

__all__ = [
    "FETCHERS",
    "INTERPRETERS",
    "Danger",
    "above_secrets",
    "credential",
    "dangers",
    "disk_device",
    "forms_in",
    "harmless_redirect",
    "of_processes",
    "plain",
    "reads_code",
]


class Danger(NamedTuple):
    """A dangerous form: any of ``letters`` or ``long``, these first ``operands``, or ``when``.

    With none of them it is every use of the program.
    """

    reason: Reason
    why: str
    letters: str = ""
    long: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    when: Callable[[Sequence[str]], bool] | None = None


def _rows(reason: Reason, why: str, programs: str) -> dict[str, tuple[Danger, ...]]:
    """Programs of which every use is dangerous."""
    return {name: (Danger(reason, why),) for name in names(programs)}


def _gives(*operands: str) -> Danger:
    return Danger(Reason.CREDENTIALS, "gives out a key, token or password", operands=operands)


def _to_device(words: Sequence[str]) -> bool:
    return any(disk_device(word.partition("=")[2]) for word in words)


def _to_all(words: Sequence[str]) -> bool:
    return "-1" in words[1:]  # as the first it is a signal


def _whole_root(words: Sequence[str]) -> bool:
    return "/" in words and ("R" in letters_of(words) or "--recursive" in words)


_REMOVAL, _DISK, _MACHINE = Reason.REMOVAL, Reason.DISK, Reason.MACHINE
_DAEMON, _ROOT, _CREDENTIALS = Reason.DAEMON, Reason.PRIVILEGES, Reason.CREDENTIALS

DANGERS: dict[str, tuple[Danger, ...]] = {
    "rm": (Danger(_REMOVAL, "forced, or whole trees", "frR", ("--force", "--recursive")),),
    **_rows(_REMOVAL, "overwrites what it removes", "shred srm wipe"),
    "find": (Danger(_REMOVAL, "removes what it finds", long=("-delete",)),),
    "rsync": (Danger(_REMOVAL, "removes files", long=("--delete", "--remove-source-files")),),
    **_rows(_DISK, "makes or destroys file systems", "mkfs mke2fs mkswap mkdosfs newfs wipefs"),
    **_rows(_DISK, "changes partitions and volumes", "fdisk sfdisk gdisk sgdisk cfdisk parted"),
    **_rows(_DISK, "changes partitions and volumes", "cryptsetup lvremove vgremove pvremove mdadm"),
    **_rows(_DISK, "changes partitions and volumes", "diskutil zpool blkdiscard hdparm badblocks"),
    **_rows(_MACHINE, "stops the machine", "shutdown reboot halt poweroff telinit"),
    "init": (Danger(_MACHINE, "stops the machine", operands=("0",)),
             Danger(_MACHINE, "stops the machine", operands=("6",))),
    "kill": (Danger(_MACHINE, "ends every process", when=_to_all),),
    "dd": (Danger(_DISK, "writes to a device", when=_to_device),),
    "crontab": (Danger(_REMOVAL, "removes all jobs", "r"),),
    **{name: (Danger(_MACHINE, "changes every file of the machine", when=_whole_root),)
       for name in ("chmod", "chown", "chgrp")},
    **_rows(_MACHINE, "opens or closes the machine's network", "iptables ip6tables nft ufw pfctl"),
    **_rows(_MACHINE, "changes who may log in", "passwd chpasswd useradd userdel usermod visudo"),
    **_rows(_ROOT, "changes mounts", "mount umount fusermount swapon swapoff"),
    **_rows(_ROOT, "changes the kernel", "insmod rmmod modprobe kexec sysctl setcap"),
    **_rows(_DAEMON, "asks a container daemon", "docker docker-compose podman nerdctl ctr"),
    **_rows(_DAEMON, "asks the manager of services", "systemctl service launchctl loginctl"),
    **_rows(_DAEMON, "asks the manager of services", "rc-service initctl supervisorctl"),
    **_rows(_DAEMON, "asks a machine daemon", "virsh multipass flatpak snap at batch"),
    **_rows(Reason.SYSTEM_PACKAGES, "a package manager of the system",
            "apt apt-get aptitude dpkg dnf yum rpm zypper pacman apk brew port emerge nix-env"),
    **_rows(_CREDENTIALS, "gives out a password", "secret-tool lpass pass gopass"),
    "security": tuple(_gives(word) for word in ("find-generic-password", "find-internet-password",
                                                "dump-keychain", "export")),
    "gpg": (Danger(_CREDENTIALS, "gives out private keys",
                   long=("--export-secret-keys", "--export-secret-subkeys")),),
    "ssh-keygen": (Danger(_CREDENTIALS, "reads private keys", "ye"),),
    "ssh-add": (Danger(_CREDENTIALS, "lists or loads keys"),),
    "gh": (_gives("auth", "token"), Danger(_CREDENTIALS, "shows a token", long=("--show-token",))),
    "glab": (_gives("auth", "token"),),
    "gcloud": (_gives("auth", "print-access-token"), _gives("auth", "print-identity-token")),
    "az": (_gives("account", "get-access-token"),),
    "aws": (_gives("configure", "get"), _gives("configure", "export-credentials"),
            _gives("sts", "get-session-token")),
    "kubectl": (Danger(_CREDENTIALS, "shows keys", long=("--raw",)), _gives("get", "secret"),
                _gives("get", "secrets")),
    "op": (_gives("read"), _gives("item")),
    "bw": (_gives("get"),),
    "vault": (_gives("read"), _gives("kv")),
    "keyring": (_gives("get"),),
}  # fmt: skip

# Programs that fetch what others may have written, and those that run text of their input.
FETCHERS = names("curl wget fetch http https aria2c lynx ftp nc ncat socat")
INTERPRETERS = re.compile(
    r"(?:python|pypy|perl|ruby|node|deno|bun|php|lua|luajit|Rscript|osascript|tclsh|guile)[\d.]*"
)

_INLINE = re.compile(r"-[A-Za-z]*[cemnpErR][\w]*|--(?:eval|print|exec|version|help)\b.*")


def reads_code(words: Sequence[str]) -> bool:
    """Whether an interpreter takes its program from its input."""
    if any(_INLINE.fullmatch(word) for word in words):
        return False
    return all(word.startswith("-") or word == "/dev/stdin" for word in words)


def dangers(name: str, words: Sequence[str]) -> list[Danger]:
    """The dangerous forms in a command; ``words`` are what follows the program's ``name``."""
    rows = DANGERS.get(name)
    if rows is None:
        if name.startswith(("mkfs.", "fsck.", "mkfs_")):
            return [Danger(_DISK, "makes or destroys file systems")]
        return []
    return forms_in(words, rows)


def forms_in(words: Sequence[str], rows: Iterable[Danger]) -> list[Danger]:
    """Those of the rows that are in the words behind a program or a sub-command."""
    letters = letters_of(words)
    operands = [word for word in words if word[:1] != "-"]
    return [row for row in rows if _has(row, words, letters, operands)]


def _has(row: Danger, words: Sequence[str], letters: set[str], operands: list[str]) -> bool:
    if row.when is not None:
        return row.when(words)
    if not (row.letters or row.long or row.operands):
        return True
    if row.operands and tuple(operands[: len(row.operands)]) == row.operands:
        return True
    if not letters.isdisjoint(row.letters):
        return True
    return any(_abbreviates(word, whole) for word in words for whole in row.long)


def _abbreviates(word: str, whole: str) -> bool:
    """Whether a word is a long option, or a beginning of it that a program may take for it."""
    name = word.partition("=")[0]
    return name == whole or (name[:2] == "--" and len(name) > 2 and whole.startswith(name))


_DEVICE = re.compile(r"/dev/(?:[shvx]v?d[a-z]|nvme|mmcblk|r?disk|dm-|md\d|mapper/|loop|sr\d|mem)")


def disk_device(path: str) -> bool:
    """Whether a path is a disk's."""
    return path.startswith("/dev/") and _DEVICE.match(path) is not None


def _alternatives(paths: Iterable[str]) -> str:
    return "|".join(re.escape(path) for path in sorted(set(paths)))


# Names that are secrets wherever they stand, and all of the table's below somebody's HOME.
_ANYWHERE = _alternatives(
    names(""".ssh .aws .gnupg .netrc .git-credentials .pgpass .kube .password-store .bash_history
    .zsh_history .vault-token .pypirc id_rsa id_dsa id_ecdsa id_ed25519""")
)
_HOME = r"(?:~[\w.-]*|\$\{?HOME\}?|/root|/home/[^/]+|/Users/[^/]+)"
_SECRET = re.compile(
    rf"(?:^|[/=@:,\"'])(?:{_ANYWHERE})(?=$|[/:,\"'])"
    rf"|{_HOME}/+(?:{_alternatives([row.path for row in SECRETS])})(?=$|[/:,\"'])"
    r"|(?:^|/)etc/(?:g?shadow|sudoers|ssh/ssh_host_|ssl/private)"
    r"|(?:^|/)run/secrets(?=$|[/\"'])|/proc/kcore",  # of containers, of Kubernetes; all memory
    re.IGNORECASE,
)


def credential(word: str) -> bool:
    """Whether a word names a place of keys or passwords."""
    if "." not in word and "/" not in word and "id_" not in word:
        return False
    if _SECRET.search(word) is not None:
        return True
    if "proc/" in word and word.rstrip("\"'/").endswith(("/environ", "/mem")):
        return True
    return ("//" in word or "/." in word) and _SECRET.search(plain(word)) is not None


def plain(path: str) -> str:
    """A path without ``//``, ``/./`` and, by its letters alone, ``..``."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] not in ("..", "."):
            if parts != [""]:  # above the root is the root
                parts.pop()
        elif part not in ("", ".") or not parts:
            parts.append(part)
    return "/".join(parts)


# What tells of a process no more than what it is.
_OF_A_PROCESS = names("status stat statm limits cgroup mountinfo mounts comm uid_map gid_map")


def of_processes(word: str) -> bool:
    """Whether a word is a place below which are environments, memory and open files of processes.

    A link leads out of /dev/fd and /proc/self/cwd, so ``..`` behind them is not what it seems.
    """
    if "proc" not in word and "dev/" not in word:
        return False
    at = min(at for at in (word.find("proc"), word.find("dev/")) if at >= 0)
    if "/.." in word[at:]:
        return True
    head, *parts = plain(word).split("/")
    if head == "proc":
        parts = [head, *parts] if parts else []
    elif head and head[:1] != "-" and head[-1] not in "=:,@.":
        return False  # src/proc
    while parts[:1] == [".."]:
        parts = parts[1:]
    if parts[:2] == ["dev", "fd"]:
        return len(parts) != 3 or not parts[2].isdigit()
    if parts[:1] != ["proc"] or len(parts) == 1:
        return parts == ["proc"]
    if parts[1].isdigit() or parts[1] in ("self", "thread-self"):
        return len(parts) != 3 or parts[2] not in _OF_A_PROCESS
    return False


_ABOVE = re.compile(
    rf"/?|/(?:etc|proc|dev)(?:/.*)?|/home|/Users|{_HOME}(?:/(?:"
    + _alternatives(
        [row.path.rsplit("/", n)[0] for row in SECRETS for n in range(1, row.path.count("/") + 1)]
    )
    + "))?",
    re.IGNORECASE,
)


def above_secrets(path: str) -> bool:
    """Whether in a directory short names are enough to read secrets: ``cd /etc``, ``cat shadow``.

    ``path`` is plain; what is reached by going up may be of the root, and of HOME.
    """
    if not path.startswith("./.."):
        return _ABOVE.fullmatch(path) is not None
    down = path.removeprefix("./").replace("../", "").removesuffix("..")
    return down != "" and any(_ABOVE.fullmatch(f"{top}/{down}") for top in ("", "~"))


_NOWHERE = "/dev/null"
_READABLE_DEVICES = frozenset({_NOWHERE, "/dev/zero", "/dev/stdin"})


def harmless_redirect(descriptor: str, operator: str, target: str) -> bool:
    """Whether a redirection is to nowhere, to another output, or from a file."""
    if descriptor and not (descriptor.isascii() and descriptor.isdigit()):
        return False
    if operator == "<":
        # bash opens connections by names below /dev/tcp.
        in_devices = re.match(r"/+(?:dev|proc)\b", target, re.IGNORECASE) is not None
        return target in _READABLE_DEVICES or not (
            in_devices or "/../" in target or of_processes(target)
        )
    if operator == ">&":
        return target in ("1", "2")
    return operator in (">", ">>", "&>", "&>>") and target == _NOWHERE
