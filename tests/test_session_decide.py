"""When to ask: the table in full, what changes an answer, and what each decision says of itself."""

from __future__ import annotations

from itertools import product

import pytest

from sandbox import Enforcement, InvalidArgument, Weaker, full_access, workspace_write
from sandbox.command import Assessment, Cause, Reason, Verdict
from sandbox.profile.values import APPROVALS, ApprovalMode
from sandbox.session.decide import (
    TABLE,
    Action,
    Decision,
    Enforced,
    Ground,
    decide,
    enforced_of,
    not_accepted,
)

OF = {
    Verdict.SAFE: Cause(Reason.READS, 0, 2),
    Verdict.UNKNOWN: Cause(Reason.PROGRAM, 0, 4),
    Verdict.UNSANDBOXED: Cause(Reason.DAEMON, 0, 9, "asks a container daemon"),
    Verdict.DANGEROUS: Cause(Reason.REMOVAL, 0, 8, "forced, or whole trees"),
    Verdict.FORBIDDEN: Cause(Reason.RULE_FORBIDS, 0, 8, "git push --force: not here"),
}
MILDEST_FIRST = {action: at for at, action in enumerate(Action)}
CASES = list(product(Enforced, Verdict, APPROVALS, (False, True)))
A, Q, D = Action.ALLOW, Action.ASK, Action.DENY


def said(verdict: Verdict) -> Assessment:
    return Assessment.of([OF[verdict]])


def decided(
    enforced: Enforced,
    verdict: Verdict,
    mode: ApprovalMode = "on-escape",
    may_leave: bool = False,
    trusted: Ground | None = None,
) -> Decision:
    return decide(said(verdict), enforced, mode, may_leave=may_leave, trusted=trusted)


def test_the_table_has_every_case_and_says_what_was_agreed() -> None:
    """Written out a second time, so that no cell changes by accident."""
    expected = {
        "full": {"safe": (A, A, A), "unknown": (Q, A, A), "unsandboxed": (Q, A, A)},
        "weaker": {"safe": (A, A, A), "unknown": (Q, Q, D), "unsandboxed": (Q, Q, D)},
        "outside": {"safe": (Q, Q, D), "unknown": (Q, Q, D), "unsandboxed": (Q, Q, D)},
    }
    both = {"dangerous": (Q, Q, D), "forbidden": (D, D, D)}
    assert {
        (Enforced(one), Verdict(verdict)): actions
        for one, row in expected.items()
        for verdict, actions in {**row, **both}.items()
    } == TABLE
    assert set(TABLE) == set(product(Enforced, Verdict))


@pytest.mark.parametrize(("enforced", "verdict", "mode", "may_leave"), CASES)
def test_what_holds_of_every_decision(
    enforced: Enforced, verdict: Verdict, mode: ApprovalMode, may_leave: bool
) -> None:
    decision = decided(enforced, verdict, mode, may_leave)
    assert decision.grounds and str(decision).startswith(f"{decision.action}: ")
    if mode == "never":
        assert decision.action is not Q
    if verdict is Verdict.FORBIDDEN:
        assert decision.action is D and [one.ground for one in decision.grounds] == [
            Ground.FORBIDDEN
        ]
        assert "git push --force: not here" in str(decision)
    if decision.action is D:
        assert "; to change it: " in str(decision)
    for trusted in (Ground.TRUSTED_EXACT, Ground.TRUSTED_PREFIX):
        with_trust = decided(enforced, verdict, mode, may_leave, trusted)
        if decision.action is Q and (
            trusted is Ground.TRUSTED_EXACT or verdict in (Verdict.SAFE, Verdict.UNKNOWN)
        ):
            assert with_trust.action is A and with_trust.grounds[0].ground is trusted
        else:
            assert with_trust == decision


@pytest.mark.parametrize(("enforced", "mode"), list(product(Enforced, APPROVALS)))
@pytest.mark.parametrize("may_leave", [False, True])
def test_a_stricter_verdict_is_never_treated_more_mildly(
    enforced: Enforced, mode: ApprovalMode, may_leave: bool
) -> None:
    found = [MILDEST_FIRST[decided(enforced, one, mode, may_leave).action] for one in Verdict]
    order = [Verdict.SAFE, Verdict.UNKNOWN, Verdict.UNSANDBOXED]
    assert list(Verdict)[:3] == order and found == sorted(found)


@pytest.mark.parametrize(("verdict", "mode"), list(product(Verdict, APPROVALS)))
def test_less_enforcement_is_never_treated_more_mildly(
    verdict: Verdict, mode: ApprovalMode
) -> None:
    found = [MILDEST_FIRST[decided(one, verdict, mode).action] for one in Enforced]
    assert found == sorted(found)


@pytest.mark.parametrize(("enforced", "verdict"), list(product(Enforced, Verdict)))
def test_untrusted_never_asks_less_than_on_escape(enforced: Enforced, verdict: Verdict) -> None:
    untrusted, on_escape = (
        MILDEST_FIRST[decided(enforced, verdict, mode).action]
        for mode in ("untrusted", "on-escape")
    )
    assert untrusted >= on_escape


def test_what_needs_no_sandbox_is_asked_for_as_such_only_where_it_may_leave() -> None:
    stays = decided(Enforced.FULL, Verdict.UNSANDBOXED)
    assert (stays.action, stays.enforced) == (A, Enforced.FULL)
    leaves = decided(Enforced.FULL, Verdict.UNSANDBOXED, may_leave=True)
    assert (leaves.action, leaves.enforced) == (Q, Enforced.OUTSIDE)
    assert leaves.grounds[0].ground is Ground.UNSANDBOXED
    assert "asks a container daemon" in str(leaves)
    assert decided(Enforced.FULL, Verdict.UNKNOWN, may_leave=True).enforced is Enforced.FULL


def test_a_denial_names_the_ground_and_what_would_change_it() -> None:
    both = Assessment.of([OF[Verdict.DANGEROUS], Cause(Reason.RULE_ASKS, 0, 1, "rm: ask first")])
    denied = decide(both, Enforced.WEAKER, "never", weaker=("tmp", "names"))
    assert [one.ground for one in denied.grounds] == [
        Ground.DANGEROUS,
        Ground.RULE_ASKS,
        Ground.WEAKER,
        Ground.NEVER,
    ]
    text = str(denied)
    for part in ("removal: forced, or whole trees", "rm: ask first", "tmp, names", "`never`",
                 "isolation.accept", 'approval.mode = "on-escape"'):  # fmt: skip
        assert part in text
    wider = decide(said(Verdict.SAFE), Enforced.OUTSIDE, "never", asked_for="--write /x")
    assert "--write /x" in str(wider) and "a policy that allows it" in str(wider)


def test_untrusted_says_that_it_is_the_mode_that_asks() -> None:
    asked = decided(Enforced.FULL, Verdict.UNKNOWN, "untrusted")
    assert [one.ground for one in asked.grounds] == [Ground.NOT_SAFE]
    outside = decided(Enforced.OUTSIDE, Verdict.SAFE, "untrusted")
    assert [one.ground for one in outside.grounds] == [Ground.OUTSIDE]


def test_a_part_counts_as_weaker_until_somebody_said_that_it_may_be() -> None:
    locks, tmp = Weaker("locks", "x", everywhere=True), Weaker("tmp", "x")
    policy = workspace_write("/w")
    one = Enforcement("landlock", (locks, tmp))
    assert not_accepted(policy, one) == (tmp,)
    assert enforced_of(policy, one) is Enforced.WEAKER
    assert enforced_of(policy, one, accepted=("tmp",)) is Enforced.FULL
    assert enforced_of(policy.with_accept(["tmp"]), one) is Enforced.FULL
    assert enforced_of(policy.with_accept(["names"]), one) is Enforced.WEAKER
    assert enforced_of(policy, Enforcement("namespaces", (locks,))) is Enforced.FULL
    assert enforced_of(policy, one, asks_more=True) is Enforced.OUTSIDE


def test_nothing_is_outside_a_policy_that_confines_nothing() -> None:
    nothing = Enforcement("none", (Weaker("tree-kill", "x"),))
    assert enforced_of(full_access(), nothing, asks_more=True) is Enforced.FULL
    assert decided(Enforced.FULL, Verdict.DANGEROUS).action is Q


def test_no_mode_and_no_trust_is_made_up() -> None:
    with pytest.raises(InvalidArgument):
        decide(said(Verdict.SAFE), Enforced.FULL, "always")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        decided(Enforced.FULL, Verdict.DANGEROUS, trusted=Ground.APPROVED)


def test_each_ground_has_a_sentence() -> None:
    for ground in Ground:
        assert ground.why and ground.why == ground.__doc__ and Ground(ground.value) is ground
