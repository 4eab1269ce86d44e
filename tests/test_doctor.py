"""`sandbox doctor`: hosts as they are met in the world, injected, and what it says of each."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest

from sandbox.advice import GROUPS, Finding, confinable, findings
from sandbox.cli.doctor import doctor_command
from sandbox.host import HostFacts, Reader, gather
from sandbox.mends import APPARMOR_PROFILE, DOCKER_PROFILE


@dataclasses.dataclass(frozen=True)
class Found:
    """A probe's findings; a new kernel's unless said otherwise."""

    landlock_abi: int = 7
    landlock_errno: int = 0
    seccomp_filter: bool = True
    pidfd_open: bool = True
    close_range: bool = True
    userns: bool = True
    userns_errno: int = 0


DEBIAN_12 = HostFacts(
    release="6.1.0-28-amd64",
    distribution="Debian GNU/Linux 12 (bookworm)",
    probe=Found(landlock_abi=2),
    lsms=("landlock", "lockdown", "capability", "yama", "apparmor"),
    landlock_built=True,
    sysctls={
        "kernel.unprivileged_userns_clone": "1",
        "user.max_user_namespaces": "31000",
        "kernel.yama.ptrace_scope": "1",
        "kernel.core_pattern": "core",
    },
)
UBUNTU_24_04 = HostFacts(
    release="6.8.0-51-generic",
    distribution="Ubuntu 24.04.1 LTS",
    probe=Found(landlock_abi=4),
    groups=("adm", "docker", "me", "sudo"),
    lsms=("lockdown", "capability", "landlock", "yama", "apparmor"),
    sysctls={
        "kernel.apparmor_restrict_unprivileged_userns": "1",
        "user.max_user_namespaces": "63000",
        "kernel.yama.ptrace_scope": "1",
        "kernel.core_pattern": "|/usr/share/apport/apport -p%p -s%s",
    },
    apparmor_label="unconfined",
    helper="/opt/tools/lib/_sandcore/sandcore-helper",
)
DOCKER_DEFAULT = HostFacts(
    release="6.12.9",
    distribution="Debian GNU/Linux 12 (bookworm)",
    uid=0,
    probe=Found(userns=False, userns_errno=errno.EPERM),
    container="docker",
    masked_proc=True,
    filtered=True,
)
DOCKER_OLD = dataclasses.replace(
    DOCKER_DEFAULT,
    probe=Found(landlock_abi=0, landlock_errno=errno.EPERM, userns=False, userns_errno=errno.EPERM),
)
RHEL_9 = HostFacts(
    release="5.14.0-503.11.1.el9_5.x86_64",
    distribution="Red Hat Enterprise Linux 9.5 (Plow)",
    probe=Found(landlock_abi=0, landlock_errno=errno.EOPNOTSUPP),
    lsms=("lockdown", "capability", "yama", "selinux", "bpf"),
    landlock_built=True,
    sysctls={"user.max_user_namespaces": "0", "kernel.yama.ptrace_scope": "0"},
)
WSL_1 = HostFacts(
    release="4.4.0-22621-Microsoft",
    distribution="Ubuntu 22.04.3 LTS",
    probe=Found(
        landlock_abi=0,
        landlock_errno=errno.ENOSYS,
        seccomp_filter=False,
        pidfd_open=False,
        close_range=False,
        userns=False,
        userns_errno=errno.EINVAL,
    ),
    wsl=1,
    wsl_interop=True,
)
WSL_2 = dataclasses.replace(
    WSL_1,
    release="5.15.167.4-microsoft-standard-WSL2",
    probe=Found(landlock_abi=1),
    wsl=2,
)
GOOD = HostFacts(
    release="6.18.1",
    distribution="Debian GNU/Linux 13 (trixie)",
    probe=Found(),
    sysctls={"kernel.yama.ptrace_scope": "1", "kernel.core_pattern": "core"},
)


def by_id(facts: HostFacts) -> dict[str, Finding]:
    found = {finding.id: finding for finding in findings(facts)}
    assert len(found) == len(findings(facts)), "two findings of one id"
    return found


def test_a_good_host_has_nothing_to_mend() -> None:
    found = findings(GOOD)
    assert {finding.level for finding in found} == {"ok"}
    assert [finding.mend for finding in found if finding.mend] == []
    assert confinable(found)


def test_debian_12s_own_kernel_cannot_stop_truncate_and_is_refused() -> None:
    found = by_id(DEBIAN_12)
    assert not confinable(findings(DEBIAN_12))
    assert found["landlock"].level == "fail"
    assert found["landlock"].what == "Landlock ABI 2"
    assert "truncate" in found["landlock"].why
    assert "bookworm-backports" in found["landlock"].mend
    assert found["userns"].level == "ok"


def test_debian_12_with_a_newer_kernel_confines() -> None:
    facts = dataclasses.replace(DEBIAN_12, release="6.12.9", probe=Found(landlock_abi=6))
    assert confinable(findings(facts))
    assert by_id(facts)["landlock"].level == "ok"


def test_ubuntu_24_04_restricts_namespaces_though_the_probe_could_make_one() -> None:
    found = by_id(UBUNTU_24_04)
    assert confinable(findings(UBUNTU_24_04))
    assert found["userns"].level == "info"
    assert "AppArmor" in found["userns"].what
    assert str(APPARMOR_PROFILE) in found["userns"].mend
    assert "s|@HELPER@|/opt/tools/lib/_sandcore/sandcore-helper|" in found["userns"].mend
    assert "apparmor_parser -r" in found["userns"].mend
    assert found["landlock"].level == "warn"
    assert "scopes" in found["landlock"].why
    assert "/usr/share/apport/apport" in found["core-pattern"].why


@pytest.mark.parametrize("change", [{"uid": 0}, {"apparmor_label": "sandcore-helper (unconfined)"}])
def test_apparmor_restricts_neither_root_nor_a_process_with_a_profile(
    change: dict[str, Any],
) -> None:
    assert by_id(dataclasses.replace(UBUNTU_24_04, **change))["userns"].level == "ok"


def test_the_docker_group_is_named_with_its_reason_and_the_way_out() -> None:
    found = by_id(UBUNTU_24_04)
    assert found["group-docker"].level == "warn"
    assert "root" in found["group-docker"].why
    assert found["group-docker"].mend.startswith("sudo gpasswd --delete $USER docker")
    assert "group-sudo" not in found
    assert "group-adm" not in found


@pytest.mark.parametrize("name", GROUPS)
def test_each_dangerous_group_is_reported(name: str) -> None:
    found = by_id(dataclasses.replace(GOOD, groups=("me", name)))
    assert found[f"group-{name}"].why.startswith(GROUPS[name])


def test_a_default_docker_container_confines_and_lacks_namespaces() -> None:
    found = by_id(DOCKER_DEFAULT)
    assert confinable(findings(DOCKER_DEFAULT))
    assert found["landlock"].level == "ok"
    assert "docker run --security-opt seccomp=" in found["userns"].mend
    assert str(DOCKER_PROFILE) in found["userns"].mend
    assert found["container"].what == "inside a container (docker)"
    assert "/proc" in found["container"].why
    assert found["root"].level == "info"


def test_an_old_docker_hides_landlock_and_the_flag_that_mends_it_is_given() -> None:
    found = by_id(DOCKER_OLD)
    assert not confinable(findings(DOCKER_OLD))
    assert "hidden" in found["landlock"].what
    assert "docker run --security-opt seccomp=" in found["landlock"].mend


@pytest.mark.parametrize(
    ("kind", "flag"),
    [("podman", "podman run --security-opt"), ("kubernetes", "localhostProfile")],
)
def test_other_containers_get_their_own_flag(kind: str, flag: str) -> None:
    assert flag in by_id(dataclasses.replace(DOCKER_OLD, container=kind))["landlock"].mend


def test_rhel_9_gets_the_boot_parameter_with_its_other_modules() -> None:
    found = by_id(RHEL_9)
    assert not confinable(findings(RHEL_9))
    assert "not enabled at boot" in found["landlock"].what
    assert '--args="lsm=landlock,lockdown,yama,selinux,bpf"' in found["landlock"].mend
    assert found["landlock"].mend.startswith("sudo grubby")


def test_elsewhere_the_boot_parameter_goes_through_grub() -> None:
    facts = dataclasses.replace(RHEL_9, distribution="Debian GNU/Linux 11 (bullseye)")
    mend = by_id(facts)["landlock"].mend
    assert "lsm=landlock,lockdown,yama,selinux,bpf" in mend
    assert "/etc/default/grub" in mend


@pytest.mark.skipif(shutil.which("sed") is None, reason="no sed")
def test_the_grub_line_does_what_it_says() -> None:
    facts = dataclasses.replace(RHEL_9, distribution="Debian GNU/Linux 11 (bullseye)")
    match = re.search(r"sed -i ('.*') /etc", by_id(facts)["landlock"].mend)
    assert match
    done = subprocess.run(
        ["sh", "-c", f"sed {match[1]}"],
        input='GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX="quiet"\n',
        capture_output=True,
        text=True,
        check=True,
    )
    expected = 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX="lsm=landlock,lockdown,yama,selinux,bpf quiet"\n'
    assert done.stdout == expected


def test_an_el9_kernel_that_claims_scopes_is_not_taken_at_its_word() -> None:
    facts = dataclasses.replace(RHEL_9, probe=Found(landlock_abi=6))
    assert by_id(facts)["landlock"].level == "warn"
    assert confinable(findings(facts))


def test_wsl_1_has_nothing_to_confine_with() -> None:
    found = by_id(WSL_1)
    assert not confinable(findings(WSL_1))
    assert "--set-version" in found["landlock"].mend
    assert found["seccomp"].level == "fail"
    assert found["wsl-interop"].level == "warn"


def test_wsl_2_with_an_old_kernel_is_told_to_update() -> None:
    found = by_id(WSL_2)
    assert not confinable(findings(WSL_2))
    assert found["landlock"].mend.startswith("wsl --update")


@pytest.mark.parametrize(
    ("release", "what"),
    [("5.10.0-30-amd64", "has no Landlock"), ("6.6.4", "built without Landlock")],
)
def test_a_kernel_without_landlock_is_told_apart_by_age(release: str, what: str) -> None:
    probe = Found(landlock_abi=0, landlock_errno=errno.ENOSYS)
    found = by_id(dataclasses.replace(GOOD, release=release, probe=probe))
    assert what in found["landlock"].what
    assert found["landlock"].level == "fail"


@pytest.mark.parametrize(
    ("sysctls", "uid", "mend"),
    [
        ({"user.max_user_namespaces": "0"}, 1000, "user.max_user_namespaces = 15000"),
        (
            {"kernel.unprivileged_userns_clone": "0"},
            1000,
            "kernel.unprivileged_userns_clone = 1",
        ),
        ({"kernel.unprivileged_userns_clone": "0"}, 0, "CONFIG_USER_NS=y"),
        ({}, 1000, "CONFIG_USER_NS=y"),
    ],
)
def test_each_switch_of_user_namespaces_has_its_line(
    sysctls: dict[str, str], uid: int, mend: str
) -> None:
    probe = Found(userns=False, userns_errno=errno.ENOSPC)
    facts = dataclasses.replace(GOOD, sysctls=sysctls, uid=uid, probe=probe)
    finding = by_id(facts)["userns"]
    assert finding.level == "info"
    assert mend in finding.mend


@pytest.mark.parametrize("name", ["seccomp_filter", "pidfd_open", "close_range"])
def test_without_a_call_that_confinement_needs_it_fails(name: str) -> None:
    facts = dataclasses.replace(GOOD, probe=Found(**{name: False}))
    assert not confinable(findings(facts))


@pytest.mark.parametrize(
    "change",
    [{"system": "FreeBSD"}, {"machine": "riscv64"}, {"probe": None}],
    ids=["bsd", "riscv", "unbuilt"],
)
def test_where_there_is_no_backend_nothing_is_confined(change: dict[str, Any]) -> None:
    assert not confinable(findings(dataclasses.replace(GOOD, **change)))


MAC = HostFacts(
    system="Darwin",
    machine="arm64",
    release="24.1.0",
    distribution="macOS 15.1",
    sandbox_exec=True,
    psutil=True,
)


def test_a_mac_confines_and_is_told_what_apples_deprecation_means() -> None:
    found = {one.id: one for one in findings(MAC)}
    assert confinable(tuple(found.values()))
    assert "macOS 15.1" in found["platform"].what and found["seatbelt"].level == "ok"
    word = found["deprecation"]
    assert word.level == "info" and "nothing runs unconfined" in word.why
    assert "sandbox doctor" in word.mend and "yama" not in found


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"sandbox_exec": False}, "seatbelt"),
        ({"inside": "seatbelt"}, "seatbelt"),
        ({"psutil": False}, "psutil"),
    ],
)
def test_what_a_mac_lacks_stops_everything(change: dict[str, Any], finding: str) -> None:
    found = findings(dataclasses.replace(MAC, **change))
    assert [one.id for one in found if one.level == "fail"] == [finding]


def mac_reader(exists: bool) -> Reader:
    plist = "<key>ProductVersion</key>\n\t<string>15.1</string>"
    return Reader(
        text=lambda path: plist if path.endswith("SystemVersion.plist") else None,
        exists=lambda path: exists and path == "/usr/bin/sandbox-exec",
        environ={},
        system=lambda: "Darwin",
        machine=lambda: "arm64",
        release=lambda: "24.1.0",
        installed=lambda name: name == "psutil",
        which=lambda name: None,
        owners=lambda: (),
        groups=lambda: (),
    )


def test_the_doctor_of_a_mac_says_what_trying_a_profile_gave(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert doctor_command(None, None, reader=mac_reader(exists=True)) == 0
    said = capsys.readouterr().out
    assert "macOS 15.1" in said and "isolation seatbelt" in said
    refused = ("this macOS does not take the profile: unbound variable", "sandbox debug seatbelt")
    assert doctor_command(None, refused, reader=mac_reader(exists=True)) == 1
    said = capsys.readouterr().out
    assert "unbound variable" in said and "cannot be confined" in said
    assert doctor_command(None, None, reader=mac_reader(exists=False)) == 1


def test_another_package_and_another_command_of_our_name_are_reported() -> None:
    facts = dataclasses.replace(
        GOOD,
        owners=("sandbox", "sandcore"),
        command="/usr/bin/sandbox",
        own_command="/venv/bin/sandbox",
    )
    found = by_id(facts)
    assert found["other-package"].mend.startswith("pip uninstall -y sandbox")
    assert found["other-command"].what == "`sandbox` on PATH is /usr/bin/sandbox"
    same = dataclasses.replace(facts, owners=("sandcore",), command="/venv/bin/sandbox")
    assert "other-package" not in by_id(same)
    assert "other-command" not in by_id(same)


def test_settings_that_leave_one_layer_alone_are_told() -> None:
    sysctls = {"dev.tty.legacy_tiocsti": "1", "kernel.yama.ptrace_scope": "0"}
    found = by_id(dataclasses.replace(GOOD, sysctls=sysctls))
    assert "dev.tty.legacy_tiocsti = 0" in found["tiocsti"].mend
    assert "kernel.yama.ptrace_scope = 1" in found["yama"].mend


def test_inside_a_sandbox_no_container_is_blamed() -> None:
    facts = dataclasses.replace(DOCKER_DEFAULT, inside="landlock")
    assert by_id(facts)["userns"].what == "the filter of this sandbox (landlock) refuses namespaces"
    assert "docker" not in by_id(facts)["userns"].mend
    assert "docker" in by_id(DOCKER_DEFAULT)["userns"].mend


def test_inside_a_sandbox_it_says_so() -> None:
    found = by_id(dataclasses.replace(GOOD, inside="landlock", filtered=True))
    assert found["nested"].what == "already inside a sandbox (landlock)"
    assert "filtered" not in found
    assert "filtered" in by_id(dataclasses.replace(GOOD, filtered=True))


# Gathering.


def reader(files: dict[str, str], **environ: str) -> Reader:
    return Reader(
        text=files.get,
        exists=lambda path: path in files,
        environ=environ,
        uid=lambda: 1000,
        groups=lambda: ("me",),
        owners=lambda: ("sandcore",),
        which=lambda name: f"/usr/bin/{name}",
        helper=lambda: None,
        system=lambda: "Linux",
        machine=lambda: "aarch64",
        release=lambda: "6.8.0",
    )


def test_facts_come_from_the_files_that_the_kernel_shows() -> None:
    facts = gather(
        Found(),
        reader(
            {
                "/etc/os-release": 'NAME=Ubuntu\nPRETTY_NAME="Ubuntu 24.04.1 LTS"\n',
                "/sys/kernel/security/lsm": "lockdown,capability,landlock",
                "/boot/config-6.8.0": "CONFIG_A=y\nCONFIG_SECURITY_LANDLOCK=y\n",
                "/proc/self/status": "Name:\tx\nSeccomp:\t2\n",
                "/proc/self/attr/apparmor/current": "unconfined\n",
                "/proc/sys/kernel/yama/ptrace_scope": "1\n",
                "/proc/sys/kernel/core_pattern": "core\n",
                "/proc/self/mountinfo": "1 2 0:5 / /proc rw - proc proc rw\n"
                "3 1 0:6 /null /proc/kcore rw - devtmpfs x rw\n",
            },
            SANDBOX="landlock",
        ),
    )
    assert facts.distribution == "Ubuntu 24.04.1 LTS"
    assert facts.lsms == ("lockdown", "capability", "landlock")
    assert facts.landlock_built is True
    assert facts.filtered
    assert facts.masked_proc
    assert facts.apparmor_label == "unconfined"
    assert facts.sysctl("kernel.yama.ptrace_scope") == 1
    assert facts.sysctl("kernel.core_pattern") is None
    assert facts.sysctl("user.max_user_namespaces") is None
    assert (facts.container, facts.inside, facts.machine) == (None, "landlock", "aarch64")


def test_what_cannot_be_read_is_unknown() -> None:
    facts = gather(None, reader({}))
    assert (facts.lsms, facts.landlock_built, facts.apparmor_label) == (None, None, None)
    assert (facts.wsl, facts.container, facts.filtered) == (None, None, False)
    assert (dict(facts.sysctls), facts.distribution, facts.masked_proc) == ({}, "", False)


@pytest.mark.parametrize(
    ("files", "environ", "kind"),
    [
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": "", "/.dockerenv": ""}, {}, "podman"),
        ({"/.dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"/run/systemd/container": "systemd-nspawn\n"}, {}, "systemd-nspawn"),
        ({}, {"container": "lxc"}, "lxc"),
        ({"/proc/1/cgroup": "0::/docker/4f2a\n"}, {}, "docker"),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, None),
    ],
)
def test_a_container_is_known_by_its_traces(
    files: dict[str, str], environ: dict[str, str], kind: str | None
) -> None:
    assert gather(None, reader(files, **environ)).container == kind


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("Linux version 4.4.0-22621-Microsoft (Microsoft@Microsoft.com)", 1),
        ("Linux version 5.15.167.4-microsoft-standard-WSL2 (root@x)", 2),
        ("Linux version 6.1.0-28-amd64 (debian-kernel@lists.debian.org)", None),
    ],
)
def test_wsl_is_known_by_the_kernels_version(version: str, expected: int | None) -> None:
    assert gather(None, reader({"/proc/version": version})).wsl == expected


def test_this_host_can_be_gathered() -> None:
    facts = gather(None)
    assert facts.release == os.uname().release
    assert facts.uid == os.geteuid()


# The command.


@pytest.mark.parametrize(("abi", "status"), [(7, 0), (2, 1)])
def test_the_exit_status_says_whether_commands_can_be_confined(
    abi: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor_command(Found(landlock_abi=abi), reader=reader({})) == status
    text = capsys.readouterr().out
    assert f"landlock: Landlock ABI {abi}" in text
    assert text.rstrip().splitlines()[-1].startswith("Commands can")
    assert ("cannot" in text.rstrip().splitlines()[-1]) == (status == 1)


@pytest.mark.parametrize(
    ("refusal", "isolation"), [(None, "namespaces"), (("no maps", "a line"), "landlock")]
)
def test_it_says_which_isolation_there_is(
    refusal: tuple[str, str] | None, isolation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    doctor_command(Found(), refusal, reader=reader({}))
    assert f"confined on this host, isolation {isolation}" in capsys.readouterr().out
    doctor_command(Found(), refusal, as_json=True, reader=reader({}))
    assert json.loads(capsys.readouterr().out)["isolation"] == isolation


def test_json_has_every_finding(capsys: pytest.CaptureFixture[str]) -> None:
    files = {"/proc/sys/dev/tty/legacy_tiocsti": "1"}
    assert doctor_command(Found(), as_json=True, reader=reader(files)) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["confinable"] is True
    assert document["release"] == "6.8.0"
    levels = {finding["id"]: finding["level"] for finding in document["findings"]}
    assert levels["tiocsti"] == "info"
    assert all(
        set(finding) == {"id", "level", "what", "why", "mend"} for finding in document["findings"]
    )


def test_the_table_for_a_terminal_keeps_mends_on_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    doctor_command(Found(), reader=reader({"/proc/sys/dev/tty/legacy_tiocsti": "1"}))
    out = capsys.readouterr().out
    mend = by_id(dataclasses.replace(GOOD, sysctls={"dev.tty.legacy_tiocsti": "1"}))["tiocsti"].mend
    assert len(mend) > 60
    assert mend in out


@pytest.mark.skipif(shutil.which("sed") is None, reason="no sed")
def test_the_apparmor_line_fills_in_the_helpers_path() -> None:
    mend = by_id(UBUNTU_24_04)["userns"].mend
    command = mend.split(" | ")[0]
    text = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    assert 'profile sandcore-helper "/opt/tools/lib/_sandcore/sandcore-helper" flags' in text
