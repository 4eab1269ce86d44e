"""Runs the tests under another kernel, in a virtual machine that has this machine's files.

`python tools/vm.py DIRECTORY ARGS...`: the directory holds unpacked kernel packages of Debian
(`dpkg -x`; vmlinuz and modules, from Linux 6.19 on `linux-binary-*` and `linux-modules-*`), and
pytest gets the rest. The guest is root, reads this machine's files, and writes to memory alone.
`--audit`: with the kernel's audit on, for tests/test_audit.py; others look for what commands print.
Needs qemu-system-x86 with its virtiofsd (Debian 12) and 12 GiB of memory; `--accel kvm` makes it
quick where the machine can do that.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DAEMON = "/usr/lib/qemu/virtiofsd"
DONE = re.compile(rb"^vm: the tests ended with (\d+)\r?$", re.MULTILINE)
MEMORY = "12G"
PATIENCE_S = 10

# A new file tree over the host's, which is read-only: an overlay, with its changes in memory. It
# becomes the root by pivot_root, because nobody in a chroot may make user namespaces.
INIT = """\
#!/bin/bash
set -e
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t tmpfs tmpfs /mnt
mkdir /mnt/up /mnt/work /mnt/new
case {overlay} in
    *.xz) xz -dc {overlay} ;;
    *) cat {overlay} ;;
esac > /mnt/overlay.ko
python3 -I -c 'import ctypes, os
assert ctypes.CDLL(None).syscall(313, os.open("/mnt/overlay.ko", 0), b"", 0) == 0'  # finit_module
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/up,workdir=/mnt/work /mnt/new
cd /mnt/new
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t securityfs securityfs sys/kernel/security
mount -t devtmpfs dev dev
mkdir -p dev/pts dev/shm
mount -t devpts devpts dev/pts
for place in dev/shm tmp var/tmp run mnt; do mount -t tmpfs -o mode=1777 tmpfs $place; done
ln -s /proc/self/fd dev/fd
ip link set lo up
mkdir mnt/host
pivot_root . mnt/host
cd {root}
code=0
setsid -w {command} </dev/ttyS0 >/dev/ttyS0 2>&1 || code=$?
echo "vm: the tests ended with $code"
echo o >/proc/sysrq-trigger
sleep 10
"""


def find(directory: Path, pattern: str) -> Path:
    """The one file of that name below a directory."""
    found = sorted(directory.rglob(pattern))
    if len(found) != 1:
        sys.exit(f"error: {directory} has {len(found)} files {pattern}: one kernel, unpacked")
    return found[0]


def machine(kernel: Path, socket: Path, init: Path, accel: str, audit: bool) -> list[str]:
    """The command of the virtual machine."""
    words = f"console=ttyS0 rootfstype=virtiofs root=host ro init={init} panic=-1 quiet"
    words += f" audit={int(audit)}"
    return [
        *("qemu-system-x86_64", "-accel", accel, "-cpu", "host" if accel == "kvm" else "max"),
        *("-machine", "q35", "-smp", "2", "-m", MEMORY, "-no-reboot"),
        *("-object", f"memory-backend-memfd,id=memory,size={MEMORY},share=on"),
        *("-numa", "node,memdev=memory", "-chardev", f"socket,id=files,path={socket}"),
        *("-device", "vhost-user-fs-pci,chardev=files,tag=host"),
        *("-kernel", str(kernel), "-append", words, "-display", "none", "-serial", "stdio"),
    ]


def boot(words: list[str]) -> bytes:
    """Shows what the guest prints; the last of it."""
    output = b""
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as guest:
        assert guest.stdout is not None
        for line in guest.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.flush()
            output = (output + line)[-4096:]
    return output


def run(directory: Path, words: list[str], accel: str, audit: bool) -> int:
    """Boots, shows what the guest prints, and returns what its tests ended with."""
    kernel, overlay = find(directory, "vmlinuz*"), find(directory, "overlay.ko*")
    # Not in /tmp, /run or the like, over which the guest has mounts of its own when it starts it.
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".vm-") as place:
        init, socket = Path(place, "init"), Path(place, "socket")
        command = shlex.join([f"{ROOT}/.venv/bin/python", "-m", "pytest", "-p", "no:cacheprovider"])
        text = INIT.format(
            overlay=shlex.quote(str(overlay.resolve())),
            root=shlex.quote(str(ROOT)),
            command=f"{command} {shlex.join(words)}",
        )
        init.write_text(text)
        init.chmod(0o755)
        options = ["-o", "source=/", "-o", "sandbox=chroot", "-o", "cache=always"]
        daemon = subprocess.Popen(
            [DAEMON, f"--socket-path={socket}", *options], stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + PATIENCE_S
        while not socket.exists() and time.monotonic() < end:
            time.sleep(0.01)
        try:
            output = boot(machine(kernel.resolve(), socket, init, accel, audit))
        finally:
            daemon.terminate()
            daemon.wait()
    ended = DONE.search(output)
    return int(ended[1]) if ended is not None else 1


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--accel", choices=("tcg", "kvm"), default="tcg")
    parser.add_argument("--audit", action="store_true")
    known, words = parser.parse_known_args()
    for program in ("qemu-system-x86_64", DAEMON):
        if shutil.which(program) is None:
            sys.exit(f"error: {program} is missing: apt-get install qemu-system-x86")
    return run(known.directory, words, known.accel, known.audit)


if __name__ == "__main__":
    sys.exit(main())
