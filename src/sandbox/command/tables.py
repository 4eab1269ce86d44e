"""Programs that only read, with the options that keep them so. The table is the truth.

A row is here only if no option of it writes a file, starts a program or sends something, whatever
the operands; options that do are simply not listed. Left out on purpose, though they look harmless:
pagers (they run what LESSOPEN names), tar (gzip and remote shells), cargo, rustc and go
``--version`` (they may run a tool chain that the workspace names), fd (``-x``), yq (``-i``),
printenv.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sandbox.command.options import ANY, Options, first_strange, names, options

__all__ = ["BUILTINS", "CHECKS", "READERS", "Reader"]


class Reader(NamedTuple):
    """A program that reads: its options, and why it is in the table."""

    options: Options
    why: str


def _any(why: str, programs: str) -> dict[str, Reader]:
    """Programs of which every option and operand is harmless."""
    return {name: Reader(ANY, why) for name in names(programs)}


def _one(name: str, why: str, table: Options) -> dict[str, Reader]:
    return {name: Reader(table, why)}


_GREP = options(
    letters="EFGPivwxclLqsonHhTUzZaIrR0123456789",
    valued="efmABCdD",
    long="""extended-regexp fixed-strings basic-regexp perl-regexp regexp file ignore-case
    no-ignore-case invert-match word-regexp line-regexp count color colour files-without-match
    files-with-matches max-count only-matching quiet silent no-messages byte-offset with-filename
    no-filename label line-number initial-tab null after-context before-context context text
    binary-files exclude exclude-from exclude-dir include recursive dereference-recursive
    line-buffered null-data""",
)
# Without --pre, --hostname-bin and -z, which start programs, and without --config-like files.
_RG = options(
    letters="iSswxvclnNoHIqFPUpa.0uLhV",
    valued="eABCmgtTEMjrd",
    long="""ignore-case smart-case case-sensitive word-regexp line-regexp invert-match count
    count-matches files-with-matches files-without-match line-number no-line-number only-matching
    with-filename no-filename quiet fixed-strings pcre2 multiline multiline-dotall pretty text
    hidden no-ignore no-ignore-vcs no-config unrestricted follow regexp after-context
    before-context context max-count glob iglob type type-not encoding max-columns max-depth
    max-filesize threads replace files type-list sort sortr color colors column no-column heading
    no-heading null stats trim vimgrep json passthru passthrough no-messages version crlf""",
)

READERS: dict[str, Reader] = {
    **_any("prints files or its input", "cat head tail tac rev nl cut paste tr fold fmt expand"),
    **_any("prints files or its input", "unexpand wc comm od numfmt cmp"),
    **_any("tells what is in directories and file systems", "ls dir vdir du df stat"),
    **_any("works on names only", "basename dirname realpath readlink pwd"),
    **_any("sums of files", "md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum"),
    **_any("sums of files", "sum"),
    **_any("tells of users and the machine", "id groups whoami logname uname nproc arch uptime"),
    **_any("tells of users and the machine", "free getconf"),
    **_any("prints or counts what it is told", "echo seq expr true false sleep factor"),
    **_any("tells where programs are", "which"),
    **_one("grep", "searches; has no option that writes", _GREP),
    **_one("egrep", "as grep", _GREP),
    **_one("fgrep", "as grep", _GREP),
    **_one("rg", "searches; --pre, --hostname-bin and -z start programs", _RG),
    **_one("sort", "-o writes, --compress-program starts a program, -T names a place to write",
           options("bdfghinMRrVcCmsuz", "kt", """ignore-leading-blanks dictionary-order ignore-case
                   general-numeric-sort human-numeric-sort ignore-nonprinting numeric-sort
                   month-sort random-sort reverse version-sort check merge key field-separator
                   stable unique zero-terminated debug""")),
    **_one("uniq", "the second operand is written",
           options("cdDiuz", "fsw", """count repeated all-repeated skip-fields ignore-case
                   skip-chars unique check-chars""", operands=1)),
    **_one("join", "has no option that writes", options("i", "aeo1v2tj", "ignore-case header")),
    **_one("diff", "-l starts pr",
           options("qsceynibBwatrNdu0123456789", "CUWFIx", """normal brief report-identical-files
                   context unified side-by-side width left-column suppress-common-lines
                   show-c-function recursive new-file ignore-case ignore-tab-expansion
                   ignore-space-change ignore-all-space ignore-blank-lines text strip-trailing-cr
                   minimal color exclude no-dereference""")),
    **_one("base64", "some have -o for a file to write", options("dDi", "w", "decode wrap")),
    **_one("base32", "as base64", options("di", "w", "decode wrap")),
    **_one("xxd", "the second operand is written; -r writes",
           options("abeipu", "cglos", operands=1)),
    **_one("hexdump", "has no option that writes", options("bcCdovx", "ens")),
    **_one("file", "-C and -m compile, -z starts programs",
           options("bhiLNnrskE", "Fe", """brief mime mime-type mime-encoding dereference
                   no-dereference""")),
    **_one("strings", "has no option that writes",
           options("afwo0123456789", "ntesT", "all bytes radix")),
    **_one("column", "has no option that writes",
           options("txenJ", "scoN", "table separator json")),
    **_one("tree", "-o writes, and so does -R with it",
           options("adfilnpshugDFqNQCrtvUxJX", "LPI",
                   "noreport dirsfirst filelimit prune du gitignore")._replace(apart=True)),
    **_one("hostname", "an operand sets it", options("fsidIA", "", "fqdn short", operands=0)),
    **_one("cd", "of a shell: changes where the next command runs", options("LPe", operands=1)),
    **_one("type", "of a shell: tells what a name is", options("afptP")),
}  # fmt: skip

# Programs that bash, sh and zsh all have in themselves: their names are not looked up. Not time,
# which dash looks up, and bash too behind an assignment.
BUILTINS = names(": cd command echo exec false printf pwd set test true type")


def _find(words: Sequence[str]) -> int | None:
    """``find``: -exec and -ok start programs, -delete, -fls and -fprint write."""
    for index, word in enumerate(words):
        if word.startswith("-") and word not in _FIND:
            return index
    return None


_FIND = frozenset(
    f"-{name}"
    for name in names("""H L P a amin and anewer atime cmin cnewer ctime d daystart depth empty
    executable false follow gid group ilname iname inum ipath iregex iwholename links lname ls
    maxdepth mindepth mmin mount mtime name newer nogroup noleaf nouser not nowarn o or path perm
    print print0 printf prune quit readable regex regextype samefile size true type uid used user
    wholename writable xdev xtype""")
)

# A script of sed that prints, deletes or replaces lines; w, e and their flags cannot be written.
_SED = re.compile(
    r"\$?p|(?:\d+|\$)(?:,(?:\d+|\$|\+\d+))?[pdq]|/[\w .:-]*/[pd]"
    r"|s([/|,#])(?:(?!\1)[^\\\[\n])*\1(?:(?!\1)[^\\\[\n])*\1[gpIi0-9]*"
)
_AWK = re.compile(
    r"\s*(?:NR\s*(?:==|[<>]=?)\s*\d+\s*)?"
    r"(?:\{\s*print(?:\s+\$(?:\d+|NF)(?:\s*,?\s*\$(?:\d+|NF))*)?\s*;?\s*\})?\s*"
)

_AWK_MAX = 200  # characters: the pattern tries blanks more than once


def _sed(words: Sequence[str]) -> int | None:
    """``sed``: -i writes, and so does a script with w; e in a script starts programs."""
    at = 0
    while at < len(words) and words[at] in ("-n", "-E", "-r", "-nE", "-nr", "-e"):
        at += 1
        if words[at - 1] == "-e":
            break
    if at == len(words) or not _SED.fullmatch(words[at]):
        return min(at, len(words) - 1)
    return _no_dash(words, at + 1)


def _awk(words: Sequence[str]) -> int | None:
    """``awk``: a program can do all; only the one that prints fields is known."""
    at = 0
    while at < len(words) and words[at].startswith("-F") and words[at] != "-F":
        at += 1
    if words[at : at + 1] == ["-F"]:
        at += 2
    if at >= len(words) or len(words[at]) > _AWK_MAX or not _AWK.fullmatch(words[at]):
        return min(at, len(words) - 1)
    return _no_dash(words, at + 1)


def _no_dash(words: Sequence[str], start: int) -> int | None:
    return next((at for at in range(start, len(words)) if words[at].startswith("-")), None)


_DATE = re.compile(
    r"\+.*|-[uR]+|-I\w*|--(?:utc|universal|rfc-email)|--(?:date|reference|iso-8601)=.*"
)
_PRINTF = re.compile(r"(?:[^%]|%%|%-?[0-9]{0,3}[sd])*", re.S)


def _date(words: Sequence[str]) -> int | None:
    """``date``: -s and an operand without a plus set the clock."""
    return next((at for at, word in enumerate(words) if not _DATE.fullmatch(word)), None)


def _printf(words: Sequence[str]) -> int | None:
    """``printf`` of a shell: -v and %n evaluate a subscript, %d of some an expression."""
    if not words or words[0].startswith("-") or not _PRINTF.fullmatch(words[0]):
        return 0
    if "d" in words[0]:
        return next((at for at, word in enumerate(words) if at and not word.isdigit()), None)
    return None


def _test(words: Sequence[str]) -> int | None:
    """``test`` of a shell: -v evaluates a subscript, so only questions about one file."""
    if len(words) == 2 and words[0] in _QUESTIONS:
        return None
    return 0 if not words or words[0] not in _QUESTIONS else len(words) - 1


_QUESTIONS = names("-d -e -f -h -L -n -r -s -w -x -z")


def _set(words: Sequence[str]) -> int | None:
    """``set`` of a shell: ending at an error, no more (-x evaluates PS4)."""
    for at, word in enumerate(words):
        if not re.fullmatch(r"-[eu]*o?", word) and not (word == "pipefail" and at):
            return at
    return None if words else 0


# What ps cannot read as these options it reads again as those of BSD, where e shows environments:
# ``ps -e -x``. So e is known only beside letters that no ps refuses.
_PS = options("AeflajuxwHTN", "oCpUt", "pid ppid forest sort no-headers format", operands=0)
_PS_EVERY = re.compile(r"-[eflFw]+|--(?:forest|no-headers)")


def _ps(words: Sequence[str]) -> int | None:
    """``ps``: e as an option of BSD shows environments, and so may a column."""
    found = first_strange(words, _PS)
    if all(_PS_EVERY.fullmatch(word) for word in words):
        return None
    if found is None:
        found = next((at for at, word in enumerate(words) if _may_show(word)), None)
    return found


def _may_show(word: str) -> bool:
    columns = word[:2] == "-o" or word[:2] == "--"
    return "env" in word.lower() if columns else "e" in word.lower()


_JQ = options(
    "nrjacCMSse",
    "",
    """null-input raw-output join-output compact-output
    monochrome-output color-output sort-keys slurp exit-status raw-input tab arg argjson""",
)
_JQ_SHOWS = re.compile(r"env|include|import")


def _jq(words: Sequence[str]) -> int | None:
    """``jq``: ``env`` and ``$ENV`` of a filter are the environment, modules may have them."""
    found = first_strange(words, _JQ)
    if found is None:
        shows = (at for at, word in enumerate(words) if _JQ_SHOWS.search(word.lower()))
        found = next(shows, None)
    return found


def _strange(table: Options) -> Callable[[Sequence[str]], int | None]:
    return lambda words: first_strange(words, table)


# What to ask for each program: the index of the first word that is not known to be harmless.
CHECKS: dict[str, tuple[Callable[[Sequence[str]], int | None], str]] = {
    **{name: (_strange(row.options), row.why) for name, row in READERS.items()},
    "find": (_find, "-exec and -ok start programs, -delete, -fls and -fprint write"),
    "sed": (_sed, "-i and w write, e starts programs"),
    "awk": (_awk, "its programs can do everything"),
    "gawk": (_awk, "its programs can do everything"),
    "mawk": (_awk, "its programs can do everything"),
    "date": (_date, "-s and an operand set the clock"),
    "printf": (_printf, "of a shell: -v and %n evaluate a subscript"),
    "test": (_test, "-v of a shell evaluates a subscript"),
    "ps": (_ps, "e may show environments"),
    "jq": (_jq, "env and $ENV show the environment"),
    "set": (_set, "of a shell: -x evaluates a variable"),
    ":": (lambda words: None, "does nothing"),
}
