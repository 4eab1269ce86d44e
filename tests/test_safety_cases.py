"""Section J of the cases from the field, and the class of each input: no checker may be fooled.

A line is a command that is not safe to run at once, unless the table says that it is.
"""

from __future__ import annotations

import itertools
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetykit import CONTEXT, assess, context, is_safe

from sandbox.command import Reason, Verdict
from sandbox.command.parse import parse

CASE_139 = [
    "ls; touch P", "ls && touch P", "ls || touch P", "ls | xargs touch", "ls & touch P",
    "ls\ntouch P", "ls\r\ntouch P", "(touch P)", "{ touch P; }", "! touch P",
    "if :; then touch P; fi", "ls #\ntouch P", "coproc touch P", "time touch P",
]  # fmt: skip
CASE_140 = [
    "cat <(touch P)", "echo hi > >(touch P)", "echo `touch P`", 'echo "$(touch P)"',
    "cat <<E\n$(touch P)\nE\n", "cat <<E\n`touch P`\nE\n", "cat <<<$(touch P)",
    "echo ${x:-$(touch P)}", "x='$(touch P)'; echo ${x@P}", "eval 'touch P'", "eval touch P",
    "source f", ". f", "trap 'touch P' EXIT", "trap -- 'touch P' EXIT",
]  # fmt: skip
CASE_142 = [
    r"find . -maxdepth 0 -e\xec touch P \;", r"find . -e$'\x78'ec touch P \;",
    r"fi''nd . -exec touch P \;", r""""find" . '-exec' touch P ';'""", r"$'\x74ouch' P",
    "{touch,P}", "t?uch P", "touch${IFS}P", "sort *", "sort ~/x", "sort [a-z]",
    "find . -e\\\nxec touch P ;",
]  # fmt: skip
CASE_143 = [
    "rg --pre ./p x", "rg --pre=./p x", r"find . -exec touch P \;", "find . -fprint P",
    "find . -fls P", r"find . -ok touch P \;", "find . -delete", "sort --compress-program=./p f",
    "python3 -c 'import os'", "sort -o P f", "sort f -oP", "uniq in P", "sed -n '1w P' f",
    "sed '1e touch P' f", "sed 's/.*/touch P/e' f", "awk 'BEGIN{system(\"touch P\")}'",
    "awk '{print >\"P\"}' f", "xxd in P", "file -C -m m", "ls | tee P", "dd if=a of=P",
    "tar cf /dev/null --checkpoint=1 --checkpoint-action=exec=./p .", "tar xf a --to-command=./p",
    "rg -z x", "env -S 'touch P'", "timeout 1 nice touch P", "rg --hostname-bin ./p x",
    "less -oP f", "tree -o P",
]  # fmt: skip
CASE_144 = [
    "git diff --output=P", "git -c core.fsmonitor=./p status", "git -c alias.z='!touch P' z",
    "git grep -O./p a", "git --exec-path=ep zed", "git ls-remote --upload-pack=./p .",
    "git -c protocol.ext.allow=always ls-remote ext::./p",
    "git archive --remote=. --exec=./p HEAD", "git branch -D x", "git -C other status",
    "git --git-dir=b log", "git --work-tree=w status", "git --config-env=a=b status",
    "git -p log", "git -c core.pager=./p log", "git --paginate log",
]  # fmt: skip
CASE_146 = [
    "./ls", "/tmp/git status", "bin/../../w/cat f", "/usr/bin/../../work/ls", "PATH=.:$PATH ls",
    "PATH=. ls", "ls(){ touch P; }; ls", "function ls { touch P; }; ls", "alias ls=./p; ls",
    "hash -p ./p ls; ls", "enable -f ./x.so ls", "command -p touch P", "./bash -c ls",
    "/work/ls", "/opt/tools/link f", "/WORK/ls", "/proc/self/cwd/ls",
]  # fmt: skip
CASE_148 = [
    "echo x >f", "echo x >>f", "echo x >|f", "echo x &>f", "echo x 1<>f", "echo x {fd}>f",
    "cat <f >g", "echo x >&f", "echo x > /dev/tcp/h/1", "cat < /dev/tcp/h/1", "cat <//dev/tcp/h/1",
]  # fmt: skip
NOT_SAFE = {
    "139": CASE_139, "140": CASE_140, "142": CASE_142, "143": CASE_143, "144": CASE_144,
    "146": CASE_146, "148": CASE_148,
}  # fmt: skip
SAFE = [
    "cat <<'E'\n$(touch P)\nE\n", "cat <<E\nplain\nE\n", "cat <<-'E'\n\t$(x)\n\tE\nls",
    "git log -p", "git diff --no-ext-diff -p", "git show -p HEAD", "git branch --show-current",
    "git log --oneline", "git status", "git show HEAD^",
    "git --no-pager diff HEAD~1 --no-ext-diff -- a.py", "git diff --cached --stat HEAD^",
    "ls 2>&1", "ls >/dev/null", "ls 2>/dev/null", "wc -l <f", "ls >/dev/null 2>&1",
    "ls &>/dev/null",
    "ls", "ls -la src", "ls; pwd", "ls && cat f | head -n 5 || true", "ls # what is there",
    "# first\nls\n", "cd src && ls \\\n  -la", "grep -rn 'a b' src", "rg -n foo src | head -20",
    'grep "x" f', "fi''nd . -name '*.py'", '"find" . -type f', "sed -n 1,20p f", "sed 's/a/b/g' f",
    "sed -n '/def /p' f", "awk '{print $1, $3}' f", "awk -F: 'NR==2 {print $NF}' f",
    "/usr/bin/ls", "/opt/tools/ls -a", "env ls", "env LC_ALL=C ls", "timeout 5 nice -n 3 ls",
    "sh -c 'ls; pwd'", "bash -c \"bash -c 'ls'\"", "command -v git", "command ls", "time ls",
    "LC_ALL=C sort f", "set -euo pipefail; ls", "test -f f && cat f", "python3 --version",
    "printf '%s\\n' a", "git stash list", "git show HEAD@{1}", "stdbuf -oL ls", "echo a#b x=y",
    r"grep foo\|bar f", r"echo \*", "git branch --list 'x*'", "git config --get user.name",
    "date +%s", "jq -r .a f", "xxd -c16 f", "git grep -n foo", "git ls-files src",
]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, id=f"CASE-{case}-{line}") for case in NOT_SAFE for line in NOT_SAFE[case]],
)
def test_what_has_an_effect_is_never_safe(line: str) -> None:
    found = assess(line)
    assert found.verdict is not Verdict.SAFE
    assert all(0 <= cause.start <= cause.end <= len(line) for cause in found.causes)
    assert not is_safe(line.encode())
    for shell in ("sh", "bash", "dash"):
        assert not is_safe([shell, "-c", line])
        assert not is_safe(f"{shell} -c {shlex.quote(line)}")


@pytest.mark.parametrize("line", SAFE)
def test_what_only_reads_is_safe(line: str) -> None:
    assert [cause for cause in assess(line).causes if cause.reason is not Reason.READS] == []
    assert is_safe(line.encode())
    assert is_safe(["sh", "-c", line])
    assert is_safe(f"sh -c {shlex.quote(line)}")


# The classes: each way of joining, hiding or starting, with each thing that must not be started.

UNSAFE = [
    "touch P",
    "./ls",
    "rm -rf x",
    "python3 x.py",
    "git -C o status",
    "sort -o P f",
    "sudo ls",
]
JOINED = [
    "{}", "ls; {}", "ls;{}", "ls && {}", "ls&&{}", "ls || {}", "ls | {}", "ls |& {}", "ls & {}",
    "ls\n{}",
    "ls\n\n{}\n", "{}; ls", "{} && ls", "{} | cat", "{} &", "({})", "({}; ls)", "{{ {}; }}", "! {}",
    "if {}; then ls; fi", "if ls; then {}; fi", "if ls; then ls; else {}; fi",
    "while {}; do ls; done", "for i in a; do {}; done", "case x in x) {};; esac",
    "until ls; do {}; done", "ls #\n{}", "ls # x\n{}", "# x\n{}", "f() {{ {}; }}; f",
    "[[ -f x ]] && {}",
    "ls \\\n; {}", "cat <<'E'\nx\nE\n{}", "cat <<'E' && {}\nx\nE\n", "cat <<'E' | {}\nx\nE\n",
    "cat <<-'E'\n\tx\n\tE\n{}", "cat <<E\nx\nE\n{}", "ls >/dev/null; {}", "ls 2>&1 | {}",
    r"echo a\ #b; {}", "echo a\\\n#b; {}", "echo 'a'#b; {}", "echo \"a\"#b; {}",
    "cat <<'E'\nx\n E\nE\n{}", "cat <<'E'\n'\nE\n{}\n'", "cat <<'E'\n\"\nE\n{} \"", "ls <f; {}",
    "ls >/dev/null {}", "echo ''#; {}", "echo '\n'; {}", "echo \"\n\"; {}",
    "echo \\'; {}; echo \\'",
    "echo '\\'; {}", "echo \"\\\"\"; {}", "echo \"'\"; {}; echo \"'\"", "echo '\"'; {}; echo '\"'",
]  # fmt: skip
INSIDE = [
    "$({})", "`{}`", '"$({})"', '"`{}`"', "<({})", ">({})", "${{x:-$({})}}", '"${{x:-`{}`}}"',
    "$(( $({}) ))", "a$({})b", '"a"$({})', "$( ls; {} )", "{{a,$({})}}", "$'a'$({})",
]  # fmt: skip
CARRIED = ["ls {}", "cat f {}", "FOO={} ls", "ls >{}", "cat <{}", "cat <<< {}", "cat <<E\n{}\nE\n",
           "echo hi | cat {}", "cd {}", "git log {}", "test -f {}", "[ -f {} ]", "[[ -n {} ]]",
           "export A={}", "A={}", "A=({})", "for i in {}; do ls; done",
           "case {} in x) ls;; esac"]  # fmt: skip
STARTED = [
    "env {}", "env -i {}", "env A=b {}", "env -u A {}", "timeout 5 {}", "timeout -k 1 -s 9 5 {}",
    "timeout --signal=9 5 {}", "nice {}", "nice -n 5 {}", "nice -5 {}", "nohup {}", "stdbuf -oL {}",
    "xargs {}", "xargs -n 1 {}", "xargs -I{{}} {}", "ls | xargs -0 {}", "command {}", "exec {}",
    "time {}", "time -p {}", "setsid {}", "ionice -c 3 {}", "sudo {}", "sudo -u a {}", "doas {}",
    "env env nice timeout 1 {}", "busybox {}", r"find . -exec {} \;", "find . -execdir {} +",
    r"find . -ok {} \;", "builtin {}", "coproc {}", "flock f {}", "strace {}", "watch {}",
]  # fmt: skip


@pytest.mark.parametrize("shape", JOINED)
def test_every_command_of_a_text_is_judged(shape: str) -> None:
    for unsafe in UNSAFE:
        assert not is_safe(shape.format(unsafe)), shape.format(unsafe)


@pytest.mark.parametrize("inside", INSIDE)
def test_what_a_substitution_runs_is_never_safe(inside: str) -> None:
    for carried, unsafe in itertools.product(CARRIED, UNSAFE):
        if "<<E" in carried and inside[0] in "<>":
            continue  # only a text there
        line = carried.format(inside.format(unsafe))
        assert not is_safe(line), line


@pytest.mark.parametrize("started", STARTED)
def test_what_another_program_starts_is_judged(started: str) -> None:
    for unsafe in UNSAFE:
        line = started.format(unsafe)
        assert not is_safe(line), line
        if "|" not in line:
            assert not is_safe(shlex.split(line)), line


QUOTINGS = [
    lambda word: word,
    lambda word: f"'{word}'",
    lambda word: f'"{word}"',
    lambda word: "\\" + word,
    lambda word: "".join("\\" + one for one in word),
    lambda word: f"{word[0]}''{word[1:]}",
    lambda word: f'{word[0]}""{word[1:]}',
    lambda word: f"'{word[:2]}'\"{word[2:]}\"",
    lambda word: f"$'{word}'",
    lambda word: "$'" + "".join(f"\\x{ord(one):02x}" for one in word) + "'",
    lambda word: f'$"{word}"',
    lambda word: f"{word[0]}\\\n{word[1:]}",
    lambda word: f"{word[0]}$(){word[1:]}",
    lambda word: f"{word[0]}${{x}}{word[1:]}",
    lambda word: f"{word[0]}?{word[2:]}",
    lambda word: f"{{{word},}}",
]
OPTIONS = {
    "sort f": ["-oP", "-o", "--output=P", "--outp=P", "-ro", "-T.", "--compress-program=./p",
               "--comp=./p", "--files0-from=f"],
    "rg x": ["--pre=./p", "--pre", "-z", "--search-zip", "-nz", "--hostname-bin=./p"],
    "find .": ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fls", "-fprint", "-fprint0",
               "-fprintf"],
    "uniq f": ["P"],
    "xxd f": ["P", "-r"],
    "base64 f": ["-oP", "-o", "--output=P"],
    "tree": ["-oP", "-o"],
    "git diff": ["--output=P", "--outp=P", "--ext-diff", "--ext-d", "--textconv", "--no-index"],
    "git log": ["--output=P", "--ext-diff", "--show-signature", "--format=%G?", "--textconv"],
    "git grep x": ["-O./p", "--open-files-in-pager=./p", "--open=./p", "-nO./p"],
    "git branch": ["-D", "-d", "-m", "new", "--edit-description", "-f", "--set-upstream-to=x"],
    "git tag": ["new", "-d", "-f"],
    "git stash": ["", "drop", "push", "pop", "apply"],
    "git config": ["a.b", "--unset", "--edit", "--file=x"],
    "git cat-file": ["--textconv", "--filters"],
    "git": ["-cx.y=z", "-c", "--exec-path=.", "--git-dir=.", "--work-tree=.", "-C", "-p"],
    "sed -n p": ["-i", "--in-place", "-f", "-ni", "-s"],
    "awk '{print}'": ["-f", "-i", "--exec"],
    "date": ["-s", "0101", "--set=x", "-f"],
    "hostname": ["x", "-F", "-b"],
    "file f": ["-C", "-z", "-m", "-S"],
    "ps": ["e", "eww"],
    "diff a b": ["-l", "--paginate"],
    "printf": ["-v", "'%n'"],
    "test": ["-v", "-R"],
    "env": ["-S'touch P'", "--split-string=x", "-vS'touch P'"],
    "timeout 1 ls": [],
}  # fmt: skip


@pytest.mark.parametrize("base", OPTIONS)
def test_an_option_that_does_more_is_found_however_it_is_written(base: str) -> None:
    for option, quoting in itertools.product(OPTIONS[base], QUOTINGS):
        word = quoting(option) if len(option) > 2 and "'" not in option else option
        assert not is_safe(f"{base} {word}"), word
        program, _, rest = base.partition(" ")
        assert not is_safe(f"{program} {word} {rest}"), word
        assert not is_safe(f"{base} -- {word} {option} P"), word


def test_an_option_is_not_hidden_behind_a_dash_that_another_takes_as_its_value() -> None:
    for line in ("sort -t -- -o P f", "sort -k -- -oP", "uniq -f -- a P", "grep -e -- -f P x"):
        assert is_safe(line) is line.startswith("grep")


def test_a_dash_behind_an_operand_makes_no_option_of_a_file_to_write() -> None:
    """`xxd in -p` writes a file of that name; uniq of some systems does too."""
    for line in ("xxd in -p", "xxd - -p", "uniq in -c", "uniq in --", "uniq -- in -c"):
        assert not is_safe(line)
    assert is_safe("xxd -p in") and is_safe("uniq -c in") and is_safe("uniq -c -- in")


@pytest.mark.parametrize("quoting", QUOTINGS)
def test_a_program_is_found_however_it_is_quoted(quoting: object) -> None:
    for program, rest in (("touch", "P"), ("python3", "x"), ("make", "")):
        assert not is_safe(f"{quoting(program)} {rest}")  # type: ignore[operator]


BASH = shutil.which("bash")


def words_of(line: str) -> list[str] | None:
    """The words of a text that is one command and no more, if they are all known."""
    script = parse(line)
    if script.refused or script.redirects or len(script.commands) != 1 or line[0] == "#":
        return None
    words = [word.text for word in script.commands[0].words]
    known = [word for word in words if word is not None]
    is_plain = len(known) == len(words) and not script.commands[0].assignments
    return known if is_plain and words[0] not in ("time", "set") else None


ONE = [
    *SAFE,
    *(quoting("touch") + " 'P'" for quoting in QUOTINGS),
    r"ls a\b \' \\ \$x",
    "ls '' \"\"",
]
ONE = [line for line in ONE if words_of(line) is not None]


@pytest.mark.skipif(BASH is None, reason="no bash to compare with")
def test_words_that_are_known_are_those_that_bash_passes(tmp_path: Path) -> None:
    assert len(ONE) > 40
    program = f"{shlex.quote(sys.executable)} -c 'import sys; print(ascii(sys.argv[1:]))'"
    for line in ONE:
        done = subprocess.run(
            [str(BASH), "-c", f"{program} {line}"],
            cwd=tmp_path, capture_output=True, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.stdout.strip() == ascii(words_of(line)), line


def test_attacks_are_answered_as_they_were_when_they_were_looked_at() -> None:
    """Each safe one of the list was looked at by a person; ⏎ stands for a newline."""
    lines = (Path(__file__).parent / "safety_attacks.txt").read_text().splitlines()
    wrong = []
    for said, _, line in (line.partition("| ") for line in lines):
        text = line.replace("⏎", "\n")
        answers = {is_safe(text), is_safe(["bash", "-c", text])}
        if answers != {said == "safe"}:
            wrong.append(line)
    assert len(lines) > 500 and wrong == []


def test_git_is_safe_only_where_its_helpers_are_off() -> None:
    """CASE-145: a plain `git status` runs what core.fsmonitor of the repository names."""
    helpers = context(helpers_off=False)
    for line in ("git status", "git diff --stat", "git log", "git show", "git -P branch"):
        assert assess(line, helpers).reasons == (Reason.GIT_HELPERS,)
        assert is_safe(line)
    for line in ("git --version", "git --no-pager rev-parse HEAD", "git branch --show-current"):
        assert is_safe(line, helpers)


def test_a_name_is_trusted_only_while_no_directory_before_it_can_be_written() -> None:
    """CASE-146: a program may be put there at any time."""
    for path in (["/work/bin", "/usr/bin"], [".", "/usr/bin"], ["", "/usr/bin"], ["/tmp",
    "/usr/bin"],
                 ["/usr/bin/../../work", "/usr/bin"], ["/WORK/b", "/usr/bin"], ["/opt/linked",
                 "/usr/bin"], []):  # fmt: skip
        assert assess("ls", context(path=path)).reasons == (Reason.UNTRUSTED_PROGRAM,)
    assert is_safe("ls", context(path=["/usr/bin", "/work/bin"]))
    assert not is_safe("ls", context(writable=["/usr"]))
    assert not is_safe("ls", context(writable=["/usr/bin/ls"]))
    assert not is_safe("ls", context(writable=["/"]))
    assert is_safe("/data/ws/ls") and not is_safe("/data/ws/ls", context(writable=["/ws"]))


def test_the_words_of_an_argv_are_not_looked_at_by_a_shell() -> None:
    assert is_safe(["grep", "$(touch P)", "*", "~", "a;b", "`x`", "a\nb"])
    assert not is_safe(["ls; touch P"])
    assert not is_safe(["cd", "x"])  # of a shell


def test_variables_of_the_environment_can_make_nothing_safe() -> None:
    for name in ("LD_PRELOAD", "BASH_ENV", "GIT_EXTERNAL_DIFF", "RIPGREP_CONFIG_PATH", "PS4",
                 "BASH_FUNC_ls%%", "GCONV_PATH"):  # fmt: skip
        assert assess("ls", context(environment=[name])).reasons[0] is Reason.ENVIRONMENT
        assert not is_safe(f"{name.rstrip('%')}=x ls")
        assert not is_safe(f"env {name.rstrip('%')}=x ls")
    assert is_safe("ls", context(environment=["HOME", "PATH", "LANG"]))


def test_a_login_shell_reads_files_that_must_be_trusted() -> None:
    assert assess("bash -lc ls").reasons[0] is Reason.WRAPPER
    assert is_safe("bash -lc ls", context(login=True))
    assert not is_safe("zsh -c ls", CONTEXT)
    assert not is_safe("bash -ic ls", context(login=True))
    assert not is_safe("bash -xc ls", context(login=True))
