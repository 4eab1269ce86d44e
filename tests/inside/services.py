"""Servers that a command starts itself, a browser, and this library in itself."""

from __future__ import annotations

from pathlib import Path

from insidekit import Fails, Row, bash, script

import sandbox

_NO_INET = "without a network namespace there is no loopback of its own, and no inet socket"
_NO_IPC = "System V memory is shared with every process of the user there"
_OWN = "PostgreSQL's own answer to root"
_PG = {"initdb": "postgresql", "psql": "postgresql-client"}


def _postgres(host: str, options: str) -> Row:
    return Row(
        bash(
            "initdb -N -A trust -U me -D data >log 2>&1 || { cat log; exit 1; }",
            f'pg_ctl -s -w -t 30 -D data -l server.log -o "-F {options}" start'
            " || { cat server.log; exit 1; }",
            f"psql -X -h {host} -p 54329 -U me -Atc 'create table t (a int)' -c 'insert into t"
            " select generate_series(1, 1000)' -c 'select sum(a) from t' postgres | grep -x 500500",
            "pg_ctl -s -m fast -D data stop",
        ),
        needs=_PG,
        answers={
            "namespaces-root": Fails("cannot be run as root", _OWN),
            "landlock-root": Fails("cannot be run as root", _OWN),
            "landlock": Fails("Operation not permitted", _NO_IPC),
        },
    )


_SOURCE = str(Path(sandbox.__file__).parent.parent)
_INNER = f"""
import sys, warnings
sys.path.insert(0, {_SOURCE!r})
warnings.simplefilter("ignore")
import sandbox
result = sandbox.run("touch w; touch /usr/x; echo $SANDBOX", cwd=".")
print(result.enforcement.isolation, result.out.strip(), result.err)
for part in result.enforcement.weaker:
    print(part.part, ":", part.cause)
assert result.enforcement.isolation == result.out.strip() == "landlock"
print("works")
"""

ROWS = {
    "postgresql": _postgres("127.0.0.1", "-h 127.0.0.1 -p 54329 -k ''"),
    "postgresql-unix-socket": _postgres('"$TMPDIR"', "-h '' -p 54329 -k $TMPDIR"),
    "redis": Row(
        bash(
            "redis-server --port 63799 --bind 127.0.0.1 ::1 --save '' --dir . --daemonize yes"
            " --logfile log --pidfile $TMPDIR/redis.pid >/dev/null",
            "for i in {1..100}; do redis-cli -p 63799 ping >ping 2>&1 && break; sleep 0.05; done",
            "redis-cli -p 63799 set a 1 | grep -x OK || { cat log; exit 1; }",
            "redis-cli -h ::1 -p 63799 get a | grep -x 1",
            "redis-cli -p 63799 bgsave | grep -q started; redis-cli -p 63799 shutdown nosave",
        ),
        needs={"redis-server": "redis-server", "redis-cli": "redis-tools"},
        answers={"landlock": Fails("Operation not permitted", _NO_INET)},
    ),
    "chromium": Row(
        bash(
            "chromium-headless-shell --no-sandbox --disable-gpu --dump-dom page.html 2>log >dom"
            " || { tail log; exit 1; }",
            "grep -q '<p>forty-two: 42</p>' dom || { cat dom; tail log; exit 1; }",
        ),
        files={
            "page.html": "<p>x</p><script>document.querySelector('p').textContent ="
            " 'forty-two: ' + 6 * 7</script>"
        },
        needs={"chromium-headless-shell": "chromium-headless-shell"},
    ),
    "itself": Row(**script(_INNER), policy=lambda: sandbox.workspace_write(read=[_SOURCE])),
}
