"""Known ways out of sandboxes, tried; named by their numbers in the catalogue of escapes.

Each is tried outside first, as the same user: an attempt that fails there too proves nothing here
and is skipped as vacuous. Inside it must fail by the errno that only our refusal gives, or be a
hole that the result reports, or be what the policy allows. What it changed is looked for from
outside. `escapes/probes.py` has the attempts, `escapes/arena.py` what they aim at.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, USER, AsUser, user_prefix

import sandbox
from sandbox import Sandbox, read_only, workspace_write

ARENA = Path(__file__).resolve().parent / "escapes" / "arena.py"
PYTHON = "/usr/bin/python3"
POLICIES = ("workspace", "readonly", "network")
ISOLATIONS = ("landlock", "namespaces")


def _ids(text: str) -> list[str]:
    return text.split()


# Refused inside, by this errno (any of them); "": it succeeds and has no effect.
_BY_FILTER: dict[str, str] = {
    **dict.fromkeys(
        _ids(
            "FSW17 FSM09 FSM10 FSM13 FSR10 FSR14 PRC06 PRC12 PRC13b PRC13c PRC17c PRC17d IPC01"
            " IPC02 IPC02b IPC04 IPC05 IPC06 IPC07 IPC08 IPC09 IPC09b IPC09c IPC10 IPC14 NET04"
            " NET08 NET09 NET13 NET16 NET16b SYS02 SYS03 SYS06 SYS08 SYS08b SYS09 SYS10 SYS11"
            " SYS12 SYS17 SYS18 SYS20 SYS21 SYS26 SYS27 SYS28 SYS29 OWN06 OWN07 RES05"
        ),
        "EPERM",
    ),
    **dict.fromkeys(_ids("FSM12 NET12 SYS01 SYS04 SYS24b"), "ENOSYS"),
    **dict.fromkeys(_ids("NET14 SYS16"), "SIGSYS"),
    **dict.fromkeys(_ids("FDH01 FDH02 FDH04 FDH05"), "EBADF"),
    **dict.fromkeys(_ids("ENV01 ENV02"), "ENOENT"),
    "FDH06": "EINVAL",
    "RES04": "EMFILE",
}
_BY_LANDLOCK: dict[str, str] = {
    **dict.fromkeys(
        _ids(
            "FSW01 FSW02 FSW04 FSW05 FSW06 FSW06b FSW08 FSW08b FSW09 FSW09c FSW10 FSW12 FSW13"
            " FSW13b FSW14 FSW16 FSW18 FSM14 FSR01 FSR02 FSR09 FSR09b FSR09c FSR09d FSR09g"
            " FSR09h FSR09i FSR09z FSR16 PRC01 PRC02 PRC04 PRC16 PRC16b PRC17 PRC17b SYS05"
            " SYS22 SYS22b SYS23 SYS30 TTY04 OWN04 OWN05 OWN09"
        ),
        "EACCES",
    ),
    **dict.fromkeys(
        _ids(
            "FSM04 PRC05 PRC08 PRC09 PRC10 PRC10c PRC10d PRC13 IPC13 NET01 NET02 NET05 NET06"
            " NET10 NET10b"
        ),
        "EPERM",
    ),
    **dict.fromkeys(_ids("FSW09b FSR09e"), "EXDEV EACCES"),
    "PRC10b": "",
}
_BY_NAMESPACES: dict[str, str] = {
    **dict.fromkeys(
        _ids(
            "FSW01 FSW02 FSW04 FSW05 FSW06 FSW06b FSW08 FSW08b FSW12 FSW13 FSW13b FSW16 FSW18"
            " FSM01 FSM02 FSM04 FSM05 FSM06 SYS30 OWN05 OWN09"
        ),
        "EROFS",
    ),
    # Two mounts with the workspace writable, one without.
    **dict.fromkeys(_ids("FSW09 FSW09b FSW09c FSW10 FSR09z"), "EXDEV EROFS"),
    **dict.fromkeys(
        _ids(
            "FSM14 FSR01 FSR02 FSR05 FSR06 FSR08 FSR09 FSR09b FSR09c FSR09d FSR09e FSR09g FSR16"
            " PRC16b PRC17b SYS22 SYS22b SYS23"
        ),
        "EACCES",
    ),
    **dict.fromkeys(
        _ids("FSR09h FSR09i PRC01 PRC02 PRC04 PRC14 PRC16 PRC17 SYS05 IPC07 IPC08 OWN03 OWN04"),
        "ENOENT",
    ),
    **dict.fromkeys(_ids("PRC05 PRC08 PRC09 PRC10 PRC10b PRC10c PRC10d PRC13"), "ESRCH"),
    "FSW14": "EROFS",
    "IPC05": "ECONNREFUSED EPERM",  # nobody of the sandbox has the name
    **dict.fromkeys(_ids("NET01 NET10 NET10b"), "ECONNREFUSED"),
    "NET02": "",
}
HELD = {
    "landlock": {**_BY_FILTER, **_BY_LANDLOCK},
    "namespaces": {**_BY_FILTER, **_BY_NAMESPACES},
}

# Possible inside, and said so in enforcement.weaker under this name.
OPEN: dict[str, dict[str, str]] = {
    "landlock": {
        **dict.fromkeys(_ids("FSM01 FSM02 FSM05 FSM06 FSM08"), "metadata"),
        **dict.fromkeys(_ids("FSR05 FSR06 FSR08"), "names"),
        "FSR04": "hard-links",
        "PRC14": "process-names",
        "OWN01": "abstract-names",
    },
    "namespaces": {"FSM08": "locks", "FSR04": "hard-links"},
}

# Possible inside, because the policy allows it or because it harms nobody outside.
_ANYWHERE: dict[str, str] = {
    "PRC18": "debuggers work; the command's own children only",
    "SYS13": "what may be run is not restricted",
    "SYS24": "names of mounts are no secret",
    "SYS25": "the end of the tree does not hang on it (KIL04)",
    "RES02": "no limit of memory is part of this policy",
    "NET16c": "names and addresses of interfaces are in /proc/net too",
    "OWN02": "the policy reads everything but secrets",
    "OWN08": "memory of its own",
}
BY_DESIGN: dict[str, dict[str, str]] = {
    "landlock": {
        **_ANYWHERE,
        "OWN03": "the policy reads everything but secrets: another sandbox's files too",
    },
    "namespaces": {
        **_ANYWHERE,
        "NET05": "in a network of its own",
        "NET06": "in a network of its own",
        "IPC13": "tells of a network of its own",
        "TTY04": "a terminal of its own",
        "OWN01": "a name in a network of its own; in the host's it is reported",
    },
}

# What network="full" allows beyond that.
BY_NETWORK = _ids("NET01 NET02 NET05 NET06 NET10 NET10b IPC13")

CATALOGUE = (
    "FSW01 02 04 05 06 08 09 10 12 13 14 16 17 18; FSM01 02 04 05 06 08 09 10 12 13 14;"
    " FSR01 02 04 05 06 08 09 10 12 13 14 16; WSP01 02 04 05 06 08 09 10 12 13 14;"
    " PRC01 02 04 05 06 08 09 10 12 13 14 16 17 18; IPC01 02 04 05 06 08 09 10 12 13 14;"
    " NET01 02 04 05 06 08 09 10 12 13 14 16; SYS01 02 04 05 06 08 09 10 12 13 16 17 18 20 21 22"
    " 24 25 26 28 29; TTY01 02 04 05; FDH01 02 04 05 06; ENV01 02; KIL01 02 04 05 06;"
    " RES01 02 04 05 08; POL01 02 04 05 06 09 12 14"
)
# Numbers with no test here, and why.
ELSEWHERE = {
    "IPC12": "an inventory; what it lists is behind IPC01",
    "NET17": "of the egress proxy, a later issue",
    "POL08": "no file system that folds case here; test_rules has the rules for one",
    "POL10": "the order of the stages: test_stages",
    "POL13": "test_aliases",
}

WHO = ["root", "user"] if os.getuid() == 0 else ["user"]


def _as(who: str) -> list[str]:
    return user_prefix() if who == "user" else []


@pytest.fixture(scope="module")
def verdicts() -> Iterator[Any]:
    """What every probe did, by user; the arena runs once for each."""
    known: dict[str, dict[str, Any]] = {}
    # Not below /tmp: a HOME there has noisy neighbours, and rules are made anew at each change.
    places = [Path(tempfile.mkdtemp(prefix="sandcore-", dir="/var/tmp")) for _ in range(4)]

    def of(who: str) -> dict[str, Any]:
        if who not in known:
            known[who] = _run_arena(who, places.pop(), places.pop())
        return known[who]

    taken = list(places)
    yield of
    for place in taken:
        shutil.rmtree(place, ignore_errors=True)


def _run_arena(who: str, place: Path, home: Path) -> dict[str, Any]:
    python = sys.executable
    if who == "user" and os.getuid() == 0:
        python = PYTHON
        for path in (place, home):
            os.chown(path, USER, USER)
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "ESCAPE_TOKEN": "of-the-caller",
        "BASH_ENV": "/nowhere", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT / "src"),
    }  # fmt: skip
    done = subprocess.run(
        [*_as(who), python, str(ARENA), str(place)],
        env=env, capture_output=True, text=True, timeout=600, cwd="/",
    )  # fmt: skip
    if "No module named" in done.stderr or "cannot import" in done.stderr:
        pytest.skip(f"needs a {PYTHON} of our own version for uid {USER}: {done.stderr[-100:]}")
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _expected(name: str, policy: str, isolation: str) -> str:
    if policy == "network" and (name in BY_NETWORK):
        return "allowed"
    if policy == "network" and name == "OWN01":
        return "EPERM" if isolation == "landlock" else "allowed"
    if name in OPEN[isolation] or name in BY_DESIGN[isolation]:
        return "allowed"
    return HELD[isolation][name]


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", [*HELD["landlock"], *OPEN["landlock"], *BY_DESIGN["landlock"]])
def test_the_attempt_fails_or_is_reported(
    name: str, isolation: str, who: str, verdicts: Any
) -> None:
    """Outside it succeeds; inside it fails by our errno, or stands in what is weaker."""
    outside, policies = verdicts(who)["outside"][name], verdicts(who)[isolation]
    works = outside["verdict"] == "allowed" and (name != "PRC10b" or outside["changed"])
    for policy in POLICIES:
        inside = policies[policy].get(name)
        if inside is None:
            continue
        assert policies[policy]["isolation"] == isolation
        assert inside["verdict"] != "broken", inside
        expected = _expected(name, policy, isolation)
        if expected == "allowed":
            assert not works or inside["verdict"] == "allowed", f"held now: {inside}"
            if name in OPEN[isolation]:
                weaker = policies[policy]["weaker"]
                assert OPEN[isolation][name] in weaker, f"{name} is open and not reported"
            continue
        assert inside["changed"] == [], f"{policy}: it had an effect: {inside}"
        if expected:
            assert inside["verdict"] in ("blocked", "not here"), f"ESCAPE under {policy}: {inside}"
        if works and expected:
            assert inside["errno"] in expected.split(), (policy, inside)
    if not works:
        pytest.skip(f"vacuous here: outside it fails too ({outside['errno'] or outside['note']})")


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_every_attempt_has_one_expected_end(isolation: str) -> None:
    parts = [{*table[isolation]} for table in (HELD, OPEN, BY_DESIGN)]
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert set.union(*parts) == {*HELD["landlock"], *OPEN["landlock"], *BY_DESIGN["landlock"]}


# The reference: what a profile with all layers left open of these, as it was measured.
APPLICABLE = _ids(
    "ENV01 ENV02 FDH01 FDH02 FDH04 FDH05 FDH06 FSM01 FSM02 FSM04 FSM05 FSM06 FSM08 FSM09 FSM12"
    " FSM13 FSM14 FSR01 FSR02 FSR04 FSR05 FSR06 FSR08 FSR09 FSR12 FSR13 FSR14 FSR16 FSW01 FSW02"
    " FSW04 FSW05 FSW06 FSW08 FSW09 FSW10 FSW12 FSW13 FSW14 FSW16 FSW18 IPC01 IPC02 IPC04 IPC05"
    " IPC06 IPC08 IPC09 IPC10 IPC12 IPC13 IPC14 KIL01 KIL02 KIL04 KIL05 KIL06 NET01 NET02 NET04"
    " NET05 NET06 NET10 NET12 NET13 NET16 PRC01 PRC02 PRC04 PRC05 PRC06 PRC08 PRC09 PRC10 PRC12"
    " PRC13 PRC14 PRC16 PRC17 PRC18 RES01 RES02 RES04 RES05 RES06 RES08 SYS01 SYS02 SYS04 SYS06"
    " SYS08 SYS10 SYS12 SYS13 SYS14 SYS17 SYS21 SYS24 SYS25 SYS26 SYS28 SYS29 TTY01 TTY02 TTY04"
    " TTY05 WSP01 WSP02 WSP04 WSP05 WSP06 WSP08 WSP09 WSP10 WSP12 WSP13 WSP14"
)
REFERENCE_OPEN = {
    "namespaces": {*_ids("FSM08 FSR04 RES08 SYS14 SYS24 WSP05 WSP08")},
    "landlock": {
        *_ids(
            "FSM01 FSM02 FSM04 FSM05 FSM06 FSM08 FSM09 FSR04 FSR05 FSR06 FSR08 FSR12 FSR13 FSR16"
            " PRC14 RES08 SYS14 SYS24 WSP01 WSP02 WSP04 WSP05 WSP06 WSP08 WSP09 WSP10 WSP12"
            " WSP13 WSP14"
        )
    },
}
# Allowed by design and swept, or put back, afterwards: not counted on either side.
APART = {
    "namespaces": {*_ids("PRC18 WSP06")},
    "landlock": {*_ids("PRC18 WSP01 WSP02 WSP06 WSP09 WSP10 WSP12 WSP13 WSP14")},
}
# Rows whose attempt succeeds while what they are about does not come about.
HARMLESS = {*_ids("NET05 NET06 IPC13 TTY04 SYS25")}
# Limits of the reference that here are for the policy to set; held where it does.
BY_LIMITS = {*_ids("RES01 RES02 RES06")}
# Open, and no single probe stands for it.
OPEN_ROWS = {
    "namespaces": {*_ids("SYS14 WSP05 WSP08")},
    "landlock": {*_ids("SYS14 WSP04 WSP05 WSP08")},
}
# What the reference holds and is open here.
MORE = {"SYS13"}


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_no_less_is_held_than_by_the_reference(isolation: str) -> None:
    """Row by row, and by their number."""
    probes = {*OPEN[isolation], *BY_DESIGN[isolation]} - {"NET16c", "OWN01", "OWN02", "OWN03"}
    ours = ({name[:5] for name in probes} & {*APPLICABLE}) | OPEN_ROWS[isolation]
    ours -= HARMLESS | BY_LIMITS | APART[isolation]
    reference = REFERENCE_OPEN[isolation] - APART[isolation]
    counted = {*APPLICABLE} - APART[isolation]
    assert ours - reference == MORE
    held, theirs = len(counted - ours), len(counted - reference)
    assert (held, theirs) == {"namespaces": (108, 108), "landlock": (92, 87)}[isolation]


def test_every_number_of_the_catalogue_has_a_test() -> None:
    """A number is a probe, the beginning of a test's name here, or has a reason to be elsewhere."""
    tests = " ".join(globals())
    for group in CATALOGUE.split("; "):
        kind = group[:3]
        for number in group[3:].split():
            name = f"{kind}{number}"
            known = {*HELD["landlock"], *OPEN["landlock"], *BY_DESIGN["landlock"], *ELSEWHERE}
            assert name in known or f"_{name.lower()}_" in tests, name


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_what_stays_open_stands_in_the_document_on_security(isolation: str) -> None:
    text = (ROOT / "SECURITY.md").read_text()
    start = text.index(f"### What isolation `{isolation}` does not give")
    section = text[start : text.index("\n##", start + 1)]
    words = {
        "landlock": ("chmod", "locks", "Names of the host's processes", "hard link", "abstract"),
        "namespaces": ("`locks`", "`hard-links`", "`repositories`", "`owners`", "`landlock`"),
    }
    for word in words[isolation]:
        assert word in section, word


# What takes more than one attempt.


@pytest.fixture(params=ISOLATIONS)
def isolation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The isolation of every sandbox of a test."""
    name: str = request.param
    monkeypatch.setenv("SANDBOX_ISOLATION", "auto" if name == "namespaces" else name)
    return name


@pytest.fixture
def quiet(isolation: str) -> Iterator[Path]:
    """A directory whose neighbours do not change; in each isolation."""
    path = Path(tempfile.mkdtemp(prefix="sandcore-", dir="/var/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def box(quiet: Path, isolation: str) -> Iterator[Sandbox]:
    """A sandbox whose workspace is `quiet`."""
    with Sandbox(workspace_write(), workspace=quiet) as made:
        assert made.enforcement.isolation == isolation
        yield made


def _python(code: str, *arguments: str) -> list[str]:
    return [PYTHON, "-I", "-S", "-c", code, *arguments]


def test_fsr12_fsr13_a_secret_inside_the_workspace_stays_one_or_is_refused(
    quiet: Path, isolation: str
) -> None:
    (quiet / "private").mkdir()
    (quiet / "private" / ".env").write_text("SECRET")
    policy = workspace_write(quiet, deny=[quiet / "private/.env"])
    if isolation == "landlock":
        with pytest.raises(sandbox.Unenforceable):
            sandbox.run("cat private/.env", policy, cwd=quiet)
    else:
        for act in ("cat private/.env", "mv private public; cat public/.env", "cat public/.env"):
            result = sandbox.run(act, policy, cwd=quiet)
            assert result.stdout == b"" and result.returncode != 0
        assert b"busy" in sandbox.run("mv private public", policy, cwd=quiet).stderr
    assert b"SECRET" in sandbox.run("cat private/.env", workspace_write(quiet), cwd=quiet).stdout


def _repository(path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    time.sleep(0.03)


PLANTS = {
    "wsp01": "mkdir -p .git/hooks; printf '#!/bin/sh\\n' > .git/hooks/pre-commit",
    "wsp02": "printf '[core]\\n fsmonitor=./x\\n' >> .git/config",
    "wsp06": "mkdir .claude; echo {} > .claude/settings.json",
    "wsp10": "ln .git/config cfg && printf '[core]\\n fsmonitor=./x\\n' >> cfg",
    "wsp12": "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
    "wsp13": "mv .git other; mkdir .git; cp -r other/. .git; printf '[core]\\n fsmonitor=./x\\n'"
    " >> .git/config",
}


@pytest.mark.parametrize("name", PLANTS)
def test_wsp01_wsp02_wsp06_wsp10_wsp12_wsp13_what_is_planted_is_refused_or_put_back(
    name: str, quiet: Path, isolation: str
) -> None:
    """What is there is read-only in namespaces; else it is changed while the command runs.

    Afterwards the host finds what was there, and is told.
    """
    _repository(quiet)
    config = (quiet / ".git/config").read_bytes()
    result = sandbox.run(PLANTS[name], workspace_write(quiet), cwd=quiet)
    if isolation == "landlock" or name == "wsp06":
        assert result.returncode == 0, result.err
        assert result.denials, "nothing was reported"
    else:
        assert result.returncode != 0
    assert (quiet / ".git/config").read_bytes() == config
    assert not (quiet / ".git/hooks/pre-commit").exists()
    assert not (quiet / ".git/info/attributes").exists()
    assert not (quiet / ".claude").exists()
    assert isolation == "namespaces" or "protected" in _weaker(result)


def _weaker(result: sandbox.Result) -> list[str]:
    return [item.part for item in result.enforcement.weaker]


def test_wsp14_git_status_outside_runs_nothing_that_a_command_planted(quiet: Path) -> None:
    _repository(quiet)
    proof = quiet / "proof"
    plant = f"""
        printf '#!/bin/sh\\ntouch {proof}\\n' > run; chmod +x run
        printf '[core]\\n fsmonitor = {quiet}/run\\n' >> .git/config
    """
    host = ["git", "-C", str(quiet), "status"]
    subprocess.run(["bash", "-c", plant], cwd=quiet, check=True)
    subprocess.run(host, capture_output=True)
    assert proof.exists(), "the plant does nothing even unconfined"
    subprocess.run(["git", "-C", str(quiet), "config", "--unset", "core.fsmonitor"], check=True)
    proof.unlink()
    time.sleep(0.03)
    sandbox.run(plant, workspace_write(quiet), cwd=quiet)
    subprocess.run(host, capture_output=True)
    assert not proof.exists()


def test_wsp04_wsp05_wsp08_repositories_below_are_the_users_to_review(
    quiet: Path, isolation: str
) -> None:
    """With Landlock only the workspace's own names are watched, and nowhere what is made anew.

    That is written down, and stays so knowingly.
    """
    (quiet / "vendor").mkdir()
    _repository(quiet / "vendor")
    act = "touch Makefile; git init -q new; touch new/.git/hooks/x; touch vendor/.git/hooks/x"
    result = sandbox.run(act, workspace_write(quiet), cwd=quiet)
    assert (quiet / "vendor/.git/hooks/x").exists() == (isolation == "landlock")
    assert (quiet / "Makefile").exists() and (quiet / "new/.git/hooks/x").exists()
    part = "protected" if isolation == "landlock" else "repositories"
    assert part in _weaker(result)
    security = (ROOT / "SECURITY.md").read_text()
    assert "Makefile" in security and "nested" in security


def test_wsp09_a_git_file_stays_what_it_is(quiet: Path, isolation: str) -> None:
    subprocess.run(
        ["git", "init", "-q", f"--separate-git-dir={quiet}/store", str(quiet)], check=True
    )
    time.sleep(0.03)
    pointer, config = (quiet / ".git").read_bytes(), (quiet / "store/config").read_bytes()
    act = "mkdir evil; echo gitdir: ./evil > .git; echo '[core]' >> store/config"
    result = sandbox.run(act, workspace_write(quiet), cwd=quiet)
    assert isolation == "landlock" or result.returncode != 0
    assert (quiet / ".git").read_bytes() == pointer
    assert (quiet / "store/config").read_bytes() == config


def test_sys14_what_may_be_read_may_be_run(box: Sandbox, quiet: Path) -> None:
    """By the loader, whatever the file's mode: nobody should take it for a boundary."""
    (quiet / "program").write_bytes(Path("/bin/true").read_bytes())
    loader = next(Path("/lib64").glob("ld-linux*"), None)
    if loader is None:
        pytest.skip("needs the dynamic loader of glibc")
    assert box.run([str(loader), "./program"]).returncode == 0


# KIL: nothing outlives its command.

DAEMONS = {
    "kil01": "import os,time\nif os.fork()==0:\n os.setsid()\n if os.fork()==0:\n  while 1: beat()",
    "kil04": "import os,signal,ctypes\nif os.fork()==0:\n os.setpgid(0,0)\n"
    " ctypes.CDLL(None).prctl(1,0,0,0,0); ctypes.CDLL(None).prctl(36,1,0,0,0)\n"
    " [signal.signal(s,signal.SIG_IGN) for s in (1,2,15)]\n while 1: beat()",
    "kil05": "import os,time\nif os.fork()==0:\n os.setsid()\n while 1: beat()\nwhile 1: beat()",
    "hop": "import os\nwhile 1:\n beat()\n if os.fork(): os._exit(0)\n os.setsid()",
    "traced": "import os,ctypes,signal\nif os.fork()==0:\n os.setsid(); p=os.getppid()\n"
    " while os.getppid()==p: beat()\n ctypes.CDLL(None).ptrace(0,0,0,0)\n"
    " if os.fork()==0:\n  while 1: beat()\n os.kill(os.getpid(),signal.SIGSTOP)\n"
    "import time; time.sleep(.2)",
}
BEAT = """
import time
def beat():
    with open("beat", "a") as file: file.write("x")
    time.sleep(0.02)
"""


@pytest.mark.parametrize("name", DAEMONS)
def test_kil01_kil04_kil05_no_daemon_outlives_its_command(
    name: str, box: Sandbox, quiet: Path
) -> None:
    box.run(_python(BEAT + DAEMONS[name]), timeout=1.5)
    size = (quiet / "beat").stat().st_size
    assert size > 0
    time.sleep(0.5)
    assert (quiet / "beat").stat().st_size == size, "it is still alive"


def test_kil02_no_child_becomes_a_sibling_of_the_command(box: Sandbox) -> None:
    code = (
        "import ctypes;c=ctypes.CDLL(None,use_errno=True);"
        "r=c.syscall(56,0x8000|17,0,0,0,0);print(r,ctypes.get_errno()) if r else c._exit(0)"
    )
    # Outside under a shell: the sibling is then the shell's to reap, not this process's.
    shell = ["/bin/sh", "-c", '"$0" "$@"; exit']
    bare = subprocess.run([*shell, *_python(code)], capture_output=True, text=True)
    assert not bare.stdout.startswith("-1")
    assert box.run(_python(code)).out.split() == ["-1", str(errno.EPERM)]


def test_kil06_all_ends_with_the_caller(quiet: Path) -> None:
    code = f"""
import sandbox, sys
sandbox.run(["{PYTHON}", "-c", sys.argv[1]], sandbox.workspace_write("{quiet}"), cwd="{quiet}")
"""
    daemon = BEAT + DAEMONS["kil05"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    caller = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code, daemon], env=env)
    until = time.monotonic() + 20
    while not (quiet / "beat").exists() and time.monotonic() < until:
        time.sleep(0.05)
    caller.kill()
    caller.wait()
    time.sleep(0.5)
    size = (quiet / "beat").stat().st_size
    time.sleep(0.5)
    assert (quiet / "beat").stat().st_size == size > 0


@pytest.mark.parametrize("act", ["SIGSTOP", "SIGKILL"])
@pytest.mark.parametrize("target", ["os.getppid()", "-1"])
def test_a_command_that_turns_on_its_lane_ends_with_it_or_has_no_effect(
    act: str, target: str, box: Sandbox, quiet: Path, isolation: str
) -> None:
    """Suicide, not escape: what it left behind ends too, and the sandbox works again."""
    daemon = BEAT + "import os,signal\nif os.fork()==0:\n os.setsid()\n while 1: beat()\n"
    code = daemon + f"import time; time.sleep(.2); os.kill({target}, signal.{act})\ntime.sleep(1.5)"
    started = time.monotonic()
    if isolation == "namespaces":
        assert box.run(_python(code), timeout=10).returncode == 0
    else:
        with pytest.raises(sandbox.SandboxLost):
            box.run(_python(code), timeout=10)
        assert time.monotonic() - started < 1.5
    size = (quiet / "beat").stat().st_size
    time.sleep(0.4)
    assert (quiet / "beat").stat().st_size == size
    assert box.run(["true"]).returncode == 0


def test_a_lane_that_is_made_a_tracer_keeps_the_time(box: Sandbox) -> None:
    code = "import ctypes,os,time; ctypes.CDLL(None).ptrace(0,0,0,0); os.kill(os.getpid(),19)"
    started = time.monotonic()
    assert box.run(_python(code), timeout=0.5).timed_out
    assert time.monotonic() - started < 5


def test_lanes_of_one_sandbox_do_not_reach_each_other(
    box: Sandbox, quiet: Path, isolation: str
) -> None:
    """Two commands of one policy at a time: neither signals, traces nor reads the other."""
    import threading

    code = (
        BEAT + "import os,sys\nopen('pid','w').write(str(os.getpid()))\n"
        "for i in range(100): beat()\nprint('unhurt')"
    )
    results: list[Any] = []
    first = threading.Thread(target=lambda: results.append(box.run(_python(code))))
    first.start()
    until = time.monotonic() + 10
    while not (quiet / "beat").exists() and time.monotonic() < until:
        time.sleep(0.01)
    attack = """
import os, ctypes
import sys
pid = int(sys.argv[1])
c = ctypes.CDLL(None, use_errno=True)
def attempt(act):
    try: act(); return "DONE"
    except OSError as error: return error.errno
def trace():
    if c.ptrace(0x4206, pid, 0, 0): raise OSError(ctypes.get_errno(), "")
print(attempt(lambda: os.kill(pid, 10)), attempt(trace),
      attempt(lambda: open(f"/proc/{pid}/environ").read()),
      attempt(lambda: open(f"/proc/{pid}/mem", "rb")))
"""
    pid = (quiet / "pid").read_text()
    if isolation == "namespaces":  # where both have the same number: the host's is tried
        pid = next(one for one in _below(os.getpid()) if "unhurt" in _words(one))
    found = box.run(_python(attack, pid)).out.split()
    first.join()
    refused = (errno.EPERM, errno.EPERM, errno.EACCES, errno.EACCES)
    if isolation == "namespaces":
        refused = (errno.ESRCH, errno.ESRCH, errno.ENOENT, errno.ENOENT)
    assert found == [str(number) for number in refused]
    assert results[0].out == "unhurt\n"


def _below(pid: int | str) -> Iterator[str]:
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield child
            yield from _below(child)


def _words(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


# RES.


@pytest.mark.skipif(os.getuid() == 0, reason="RLIMIT_NPROC does not bind root; run as a user")
def test_res01_processes_are_counted(quiet: Path) -> None:
    limits = sandbox.Limits(processes=64, wall=20)
    result = sandbox.run(
        "for i in $(seq 300); do sleep 5 & done", workspace_write(quiet), cwd=quiet, limits=limits
    )
    assert b"Resource temporarily unavailable" in result.stderr


def test_res02_res06_memory_and_processor_time_are_limited_where_the_policy_says(
    quiet: Path,
) -> None:
    policy = workspace_write(quiet)
    result = sandbox.run("while :; do :; done", policy, cwd=quiet, limits=sandbox.Limits(cpu=1))
    assert result.signal in (signal.SIGXCPU, signal.SIGKILL) and not result.timed_out
    limits = sandbox.Limits(memory=256 << 20)
    code = "import mmap; mmap.mmap(-1, 64 << 30, flags=0x4022)"
    assert sandbox.run(_python(code), policy, cwd=quiet).returncode == 0
    assert sandbox.run(_python(code), policy, cwd=quiet, limits=limits).returncode != 0


def test_res08_a_hostile_temporary_directory_is_emptied(box: Sandbox, isolation: str) -> None:
    """Two thousand levels, links out of it, no permissions, odd names; the target stays."""
    code = """
import os
os.chdir(os.environ["TMPDIR"])
os.symlink("/etc", "link"); os.mkfifo("fifo"); open("new\\nline", "w"); open(b"\\xff", "w")
os.mkdir("locked"); open("locked/f", "w"); os.chmod("locked", 0)
for _ in range(2000):
    os.mkdir("d"); os.chdir("d")
print(os.environ["TMPDIR"])
"""
    place = Path(box.run(_python(code), check=True).out.strip())
    if isolation == "landlock":
        assert list(place.iterdir()) == []
    else:  # it is memory of the sandbox's own, and goes with it
        began = time.monotonic()
        box.close()
        assert time.monotonic() - began < 2
    assert Path("/etc/passwd").exists()


@pytest.mark.parametrize(
    "act",
    [
        'rm -rf "$TMPDIR"',
        'chmod 000 "$TMPDIR"',
        'rm -rf "$TMPDIR"; ln -s {outside} "$TMPDIR"',
        'rm -rf "$TMPDIR"; echo x > "$TMPDIR"',
        'mv "$TMPDIR" "$TMPDIR-moved"; mkdir "$TMPDIR"',
        'chmod 000 "$TMPDIR/.."',
        'rm -rf "$TMPDIR"; mkfifo "$TMPDIR"',
    ],
)
def test_a_command_may_do_what_it_likes_to_its_tmpdir(
    act: str, box: Sandbox, outside: Path, isolation: str
) -> None:
    """Scripts remove it when they are done. The next command has one, and nobody else is hurt."""
    if isolation == "namespaces":
        act = act.replace("/..", "")  # there is nothing above it but the root
    box.run(act.format(outside=outside))
    again = box.run('touch "$TMPDIR/f" && ls -A "$TMPDIR" && test ! -L "$TMPDIR"', check=True)
    assert "f\n" in again.out and (again.out == "f\n" or isolation == "namespaces")
    assert (outside / "file").read_text() == "outside\n"


# TTY.


def _in_a_terminal(code: str, confined: bool) -> str:
    """Runs code in the session of a terminal of its own; what came out."""
    runner = (
        f"import sandbox, os; r = sandbox.run(['{PYTHON}', '-c', os.environ['CODE']],"
        " sandbox.read_only(), cwd='/', stdin=0, stdout=1, stderr=2, terminal=True)"
    )
    bare = f"import subprocess, os; subprocess.run(['{PYTHON}', '-c', os.environ['CODE']])"
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "CODE": code, "PYTHONWARNINGS": "ignore"}
    pid, terminal = pty.fork()
    if pid == 0:
        program = runner.replace("os.environ['CODE']", repr(code)) if confined else bare
        os.execve(sys.executable, [sys.executable, "-c", program], env)
    output = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:
            break
        if not part:
            break
        output += part
    os.close(terminal)
    os.waitpid(pid, 0)
    return output.decode()


@pytest.mark.parametrize("high", [0, 1 << 32, 0xDEADBEEF << 32])
def test_tty01_tty02_tty05_no_keys_are_pushed_into_the_terminal(high: int, isolation: str) -> None:
    code = (
        "import ctypes; c=ctypes.CDLL(None,use_errno=True);"
        f"r=c.syscall(ctypes.c_long(16),ctypes.c_long(0),ctypes.c_ulong({0x5412 | high}),b'X');"
        "print('result',r,ctypes.get_errno())"
    )
    if "result 0" not in _in_a_terminal(code, confined=False):
        pytest.skip("vacuous here: this kernel refuses TIOCSTI to everybody")
    assert f"result -1 {errno.EPERM}" in _in_a_terminal(code, confined=True)


# POL: the boundary is what the user named.


@pytest.mark.parametrize("place", ["/", "~", "~/..", "/proc", "/sys"])
def test_pol01_pol02_some_directories_are_no_workspace(place: str, isolation: str) -> None:
    with pytest.raises((sandbox.PolicyError, sandbox.HostError)):
        sandbox.run("true", cwd=os.path.expanduser(place))


def test_pol04_what_is_denied_before_it_exists_stays_denied(quiet: Path) -> None:
    secret, work = quiet / "later", quiet / "work"
    work.mkdir()
    policy = workspace_write(work, deny=[secret])
    with Sandbox(policy) as box:
        assert box.run(["true"]).returncode == 0
        secret.write_text("SECRET")
        result = box.run(["cat", str(secret)])
        assert result.stdout == b"" and b"Permission denied" in result.stderr
    with Sandbox(workspace_write(work)) as box:
        assert box.run(["cat", str(secret)]).out == "SECRET"


def test_pol05_pol06_a_workspace_that_is_swapped_for_a_link_leads_nowhere(
    quiet: Path, outside: Path
) -> None:
    """Between two commands, by somebody outside."""
    work = quiet / "work"
    work.mkdir()
    with Sandbox(workspace_write(work)) as box:
        assert box.run("touch here", check=True)
        work.rename(quiet / "away")
        work.symlink_to(outside)
        with contextlib.suppress(sandbox.SandboxException):
            box.run("touch there")
        assert sorted(path.name for path in outside.iterdir()) == ["file"]


def test_pol09_every_thread_is_confined(box: Sandbox, quiet: Path, isolation: str) -> None:
    code = (
        "import threading,sys\n"
        "def work():\n try: open(sys.argv[1],'w'); print('wrote')\n"
        " except OSError as e: print(e.errno)\n"
        "t=threading.Thread(target=work); t.start(); t.join()"
    )
    there = quiet.parent / f"{quiet.name}-beside"
    there.write_text("")
    try:
        expected = errno.EACCES if isolation == "landlock" else errno.EROFS
        assert box.run(_python(code, str(there))).out == f"{expected}\n"
    finally:
        there.unlink()


def test_pol12_no_program_is_trusted_by_its_name(box: Sandbox, quiet: Path, outside: Path) -> None:
    script = quiet / "git"
    script.write_text(f"#!/bin/sh\necho x > {outside}/file\n")
    script.chmod(0o755)
    assert box.run(["./git"]).returncode != 0
    assert (outside / "file").read_text() == "outside\n"


def test_pol14_a_hard_link_beside_a_denied_file_does_not_open_it(
    quiet: Path, isolation: str
) -> None:
    (quiet / "secret").write_text("SECRET")
    (quiet / "open").mkdir()
    os.link(quiet / "secret", quiet / "alias")
    with Sandbox(read_only().with_deny(quiet / "secret")) as box:
        assert box.run(["cat", str(quiet / "secret")], cwd="/").stdout == b""
        # Rules would open both, and so open none. A mask is about the name.
        text = b"" if isolation == "landlock" else b"SECRET"
        assert box.run(["cat", str(quiet / "alias")], cwd="/").stdout == text
        assert "hard-links" in [item.part for item in box.enforcement.weaker]


# Beyond the catalogue.


def test_a_sandbox_in_a_sandbox_is_no_wider(quiet: Path) -> None:
    work, inner, outside = quiet / "work", quiet / "work/inner", quiet / "outside"
    for path in (work, inner, outside):
        path.mkdir()
    (outside / "file").write_text("outside\n")
    code = f"""
import sys; sys.path.insert(0, {str(ROOT / "src")!r})
import warnings; warnings.simplefilter("ignore")
import sandbox
policy = sandbox.workspace_write({str(inner)!r}, write=[{str(outside)!r}])
act = "touch made; echo x > {outside}/file; echo x > ../f"
result = sandbox.run(act, policy, cwd={str(inner)!r})
print(result.returncode)
"""
    # Ours may lie in a /tmp that is not there inside.
    with Sandbox(workspace_write(work, read=[ROOT / "src"])) as box:
        result = box.run([sys.executable, "-B", "-c", code])
    if b"ModuleNotFoundError" in result.stderr or b"PermissionError" in result.stderr:
        pytest.skip(f"no interpreter of ours can start in there: {result.err[-100:]}")
    assert (inner / "made").exists(), result.err
    assert (outside / "file").read_text() == "outside\n"
    assert not (work / "f").exists()


@pytest.mark.parametrize("name", [b"sp ace", b"new\nline", b"-rf", b"$(touch x)", b"'\""])
def test_a_workspace_may_have_any_name(name: bytes, quiet: Path) -> None:
    """And is the one that is written, not another that its name reads like."""
    work = Path(os.fsdecode(os.path.join(os.fsencode(quiet), name)))
    work.mkdir()
    result = sandbox.run("touch here; touch ../there", workspace_write(work), cwd=work)
    assert sorted(os.listdir(work)) == ["here"]
    assert result.returncode != 0 and not (quiet / "there").exists()


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("mkfs.btrfs") is None or shutil.which("unshare") is None,
    reason="needs root, unshare and mkfs.btrfs (apt-get install btrfs-progs)",
)
def test_a_snapshot_does_not_show_what_is_denied(quiet: Path) -> None:
    """On btrfs a directory that may be opened could be copied whole into the workspace."""
    image, mount = quiet / "image", quiet / "mount"
    mount.mkdir()
    with open(image, "wb") as file:
        file.truncate(150 << 20)
    subprocess.run(["mkfs.btrfs", "-q", str(image)], check=True, capture_output=True)
    code = f"""
import fcntl, os, struct, sys, warnings
warnings.simplefilter("ignore")
top = {str(mount)!r}
def make(number, where, name, source=0):
    args = bytearray(struct.pack("=QQQ4Q", source, 0, 0, 0, 0, 0, 0) + name.ljust(4040, b"\\0"))
    fcntl.ioctl(os.open(where, os.O_RDONLY), number, args)
make(0x50009418, top, b"home")
os.makedirs(top + "/home/.ssh"); os.mkdir(top + "/work")
open(top + "/home/.ssh/key", "w").write("SECRET")
make(0x50009417, top + "/work", b"outside", os.open(top + "/home", os.O_RDONLY))
print(open(top + "/work/outside/.ssh/key").read())
os.environ["HOME"] = top + "/home"
import sandbox
inside = '''import fcntl, os, struct
args = struct.pack("=QQQ4Q", os.open("../home", os.O_RDONLY), 0, 0, 0, 0, 0, 0)
args = bytearray(args + b"inside".ljust(4040, b"\\\\0"))
try: fcntl.ioctl(os.open(".", os.O_RDONLY), 0x50009417, args)
except OSError as error: print(error.errno)
'''
print(sandbox.run(["{PYTHON}", "-c", inside], cwd=top + "/work").out, os.listdir(top + "/work"))
"""
    script = 'mount -o loop "$1" "$2" && exec "$3" -c "$4"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", str(image), str(mount), sys.executable, code],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    if "mount" in done.stderr and "SECRET" not in done.stdout:
        pytest.skip(f"btrfs cannot be mounted here: {done.stderr[-200:]}")
    expected = ["SECRET", str(errno.EPERM), "['outside']"]
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="it is one that runs this")
def test_all_of_this_as_an_ordinary_user(as_user: AsUser) -> None:
    """But the attempts, which have been made as both."""
    command = [*as_user.python()[:-1], "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k"]
    done = as_user([*command, "not the_attempt", __file__], timeout=500)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
