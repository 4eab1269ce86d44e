"""The lines that mend a host, each made for the distribution or container at hand.

They are shown to a person and never run by us. Two of them use a file that is shipped beside this
one in `profiles/`: a seccomp profile for containers and an AppArmor profile for the helper.
"""

from __future__ import annotations

import re
from pathlib import Path

from sandbox.host import DISTRIBUTION, HostFacts

SHIPPED = Path(__file__).parent / "profiles"
DOCKER_PROFILE = SHIPPED / "docker-seccomp.json"
APPARMOR_PROFILE = SHIPPED / "sandcore-helper.apparmor"


def kernel_version(release: str) -> tuple[int, int]:
    """(major, minor) of a kernel release, (0, 0) when it has none."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def container_flag(facts: HostFacts) -> str:
    """How to start this container so that it may use what its filter hides."""
    if facts.container is None or facts.inside:
        return "start this outside of what confines it already"
    if facts.container == "kubernetes":
        return (
            "securityContext.seccompProfile: {type: Localhost, localhostProfile: "
            f"{DOCKER_PROFILE.name}}}   # the file is {DOCKER_PROFILE}"
        )
    tool = "podman" if facts.container == "podman" else "docker"
    return (
        f"{tool} run --security-opt seccomp={DOCKER_PROFILE.name} ..."
        f"   # the file, to be copied to the host, is {DOCKER_PROFILE}"
    )


def set_sysctl(name: str, value: int) -> str:
    """The line that sets a sysctl now and at every boot."""
    return (
        f"echo '{name} = {value}' | sudo tee /etc/sysctl.d/60-{DISTRIBUTION}-{name}.conf"
        " && sudo sysctl --system"
    )


def set_boot_parameter(facts: HostFacts) -> str:
    """The line that adds Landlock to the security modules of the next boot."""
    others = [name for name in facts.lsms or () if name not in ("capability", "landlock")]
    value = "lsm=" + ",".join(["landlock", *others])
    if re.search(r"red ?hat|fedora|centos|rocky|alma|oracle", facts.distribution, re.IGNORECASE):
        return f'sudo grubby --update-kernel=ALL --args="{value}" && sudo reboot'
    return (
        f"sudo sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{value} /' /etc/default/grub"
        " && sudo update-grub && sudo reboot"
    )


def newer_kernel(facts: HostFacts) -> str:
    """The line that gets a kernel with a Landlock that suffices."""
    if facts.wsl:
        return "wsl --update   # in Windows"
    if "bookworm" in facts.distribution:
        return (
            "sudo apt-get install -t bookworm-backports linux-image-$(dpkg --print-architecture)"
            " && sudo reboot   # with bookworm-backports in the apt sources"
        )
    if "Ubuntu 22.04" in facts.distribution:
        return "sudo apt-get install linux-generic-hwe-22.04 && sudo reboot"
    return "install Linux 6.12 or newer (6.2 is the least) and reboot"


def apparmor_line(facts: HostFacts) -> str:
    """The line that installs the shipped AppArmor profile for this installation's helper."""
    target = "/etc/apparmor.d/sandcore-helper"
    helper = facts.helper or "/PATH/TO/_sandcore/sandcore-helper"
    return (
        f"sed 's|@HELPER@|{helper}|' {APPARMOR_PROFILE} | sudo tee {target} >/dev/null"
        f" && sudo apparmor_parser -r {target}"
    )
