import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.auth import matrix
from vibemq.auth.grants import KNOWN_MAX, Grants
from vibemq.auth.matrix import COMMANDS, OPERATIONS, PUBLISH, check_total, permissions_of, resource_name
from vibemq.auth.policy import Policy
from vibemq.errors import NotAuthenticated, NotAuthorized
from vibemq.model.access import LoginKind, Principal, ResourceKind, Rule, When
from vibemq.model.commands import DeleteGroup, Publish, SetFlow, Stage, Subscribe
from vibemq.model.jobs.job import JobKind
from vibemq.model.rows import Rows

ANN = Principal("ann")


def rule(pattern: str, *actions: str, kind: ResourceKind = ResourceKind.QUEUE) -> Rule:
    return Rule(kind, pattern, frozenset(actions))


def publish(queue: str) -> Publish:
    return Publish(1, "t", queue, Rows.of([b"row"]))


@given(st.text("ab*", max_size=8), st.text("ab", max_size=12))
def test_patterns_fit_as_their_regular_expressions_do(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None
    policy = Policy({"ann": [rule(pattern, "publish")]})
    assert policy.allows(ANN, PUBLISH, name) == expected


def test_no_pattern_makes_a_long_name_expensive() -> None:
    policy = Policy({"ann": [rule("*a" * 40 + "b", "publish")]})
    assert not policy.allows(ANN, PUBLISH, "a" * 60_000)


def test_a_command_a_kind_of_job_or_an_operation_without_a_row_cannot_be() -> None:
    with pytest.raises(LookupError, match="Publish"):
        check_total({kind: row for kind, row in COMMANDS.items() if kind is not Publish}, COMMANDS, "commands")
    with pytest.raises(LookupError, match="int"):
        check_total(COMMANDS, (*COMMANDS, int), "commands")
    with pytest.raises(LookupError, match="kinds of jobs differ in purge_dead"):
        check_total({JobKind.REPLAY: (PUBLISH,)}, (JobKind.REPLAY, JobKind.PURGE_DEAD), "kinds of jobs")
    with pytest.raises(LookupError, match=r"'queue.sing' has no row"):
        permissions_of("queue.sing")
    assert all(OPERATIONS.values())
    assert all(COMMANDS.values())


def test_what_names_the_resource() -> None:
    arguments = {"queue": "q", "group": "g", "app": "job", "to": 7}
    assert resource_name(PUBLISH, arguments.get) == "q"
    assert resource_name(matrix.MANAGE, arguments.get) == "q/g"
    assert resource_name(matrix.TRANSACT, arguments.get) == "job"
    assert resource_name(matrix.PUBLISH_TO, arguments.get) == "q"
    assert resource_name(matrix.PUBLISH_TO, {**arguments, "to": "other"}.get) == "other"
    assert resource_name(PUBLISH, {"queue": ["q"]}.get) == ""


def test_grants_are_kept_until_the_principal_or_the_policy_changes() -> None:
    policy = Policy({"ann": [rule("q", "publish")], "ben": []})
    grants = Grants(policy)
    assert isinstance(grants.check(None, publish("q")), NotAuthenticated)
    assert grants.check(ANN, publish("q")) is None
    assert isinstance(grants.check(ANN, publish("other")), NotAuthorized)
    assert isinstance(grants.check(Principal("ben"), publish("q")), NotAuthorized)
    assert grants.check(ANN, publish("q")) is None
    policy.replace({"ann": [rule("q", "subscribe")]})
    assert isinstance(grants.check(ANN, publish("q")), NotAuthorized)
    policy.replace({"ann": [rule("q", "publish")]})
    assert grants.check(ANN, publish("q")) is None


def test_the_servers_own_words_are_nobodys() -> None:
    grants = Grants(Policy({}, enabled=False))
    root = Principal("root", superuser=True)
    assert isinstance(grants.check(root, SetFlow(1, True)), NotAuthorized)
    assert isinstance(grants.check(root, object()), NotAuthorized)  # type: ignore[arg-type]


def test_a_command_says_for_whom_it_is_and_what_it_may() -> None:
    policy = Policy(
        {
            "ann": [
                rule("a.*", "publish", "subscribe"),
                rule("a.new", "create"),
                rule("a.q/team-*", "manage", kind=ResourceKind.GROUP),
                rule("*", "transact", kind=ResourceKind.TRANSACTION),
            ]
        }
    )
    grants = Grants(policy)
    for _ in range(2):
        new, old = publish("a.new"), publish("a.old")
        consumer = Subscribe(1, "t", 1, "a.old")
        stage = Stage(1, "t", "a.new", "job", 1, "s", 0, Rows.of([b"row"]))
        team, other = (DeleteGroup(1, "t", "a.q", name) for name in ("team-1", "other"))
        for command in (new, old, consumer, stage, team, other):
            assert grants.check(ANN, command) is None
        assert (new.create, old.create, consumer.create, stage.create) == (True, False, False, True)
        assert {consumer.user, stage.user, team.user} == {"ann"}
        assert (team.manage, other.manage) == (True, False)


@pytest.mark.parametrize("kind", LoginKind)
def test_users_look_after_themselves_with_their_password_alone(kind: LoginKind) -> None:
    policy = Policy({"ann": []}, superusers=["root"])
    ann = Principal("ann", login=kind)
    assert policy.allows(ann, matrix.SELF, "ann") == (kind is LoginKind.PASSWORD)
    assert not policy.allows(ann, matrix.SELF, "ben")
    assert not policy.allows(Principal("ann"), matrix.SELF, "ann")
    assert policy.allows(Principal("root", superuser=True, login=kind), matrix.SELF, "ann")


def refusal(principal: Principal, operation: str, **arguments: str) -> str:
    with pytest.raises(NotAuthorized) as refused:
        Policy({"ann": []}).admit(principal, matrix.OPERATIONS[operation], arguments.get, operation=operation)
    return str(refused.value)


def test_a_refusal_says_what_is_enough_in_place_of_every_queue_or_user() -> None:
    ann = Principal("ann", login=LoginKind.PASSWORD)
    assert "on every queue, which dlq.show requires; name the queue that is meant (`queue`), or" in refusal(
        ann, "dlq.show"
    )
    assert "name the queue" not in refusal(ann, "dlq.show", queue="q")
    for operation in ("token.list", "connections.list"):
        assert refusal(ann, operation) == (
            f"{operation} for every user requires a superuser; name yourself (`user`: 'ann')"
        )
        assert "not with a token" not in refusal(ann, operation, user="ben")
        by_token = Principal("ann", login=LoginKind.TOKEN)
        assert "requires a login with the password, not with a token" in refusal(by_token, operation, user="ann")
        assert "requires a login with the password, not with a token" in refusal(by_token, operation)


def test_nobody_is_told_to_name_a_queue_of_a_job_that_was_made() -> None:
    told = Policy({}).refusal(Principal("ann"), matrix.INSPECT, "", operation="job.result")
    assert str(told).endswith("on every queue, which job.result requires; ask the broker's operator for it")


def test_what_is_remembered_about_queue_names_is_bounded() -> None:
    grants = Grants(Policy({}, enabled=False))
    for number in range(3 * KNOWN_MAX):
        assert grants.check(ANN, publish(f"q{number}")) is None
    assert len(grants._known) <= KNOWN_MAX


@pytest.mark.parametrize("enabled", [True, False])
def test_nobody_has_a_right_to_a_queue_of_the_brokers_own(enabled: bool) -> None:
    """Whatever the rules: no command and no operation that names it passes, but for looking at its figures."""
    rules = [rule("*", "*"), rule("*", "*", kind=ResourceKind.GROUP), rule("*", "*", kind=ResourceKind.TRANSACTION)]
    policy = Policy({"ann": rules, "root": rules}, superusers=["root"], enabled=enabled)
    of_queues = (ResourceKind.QUEUE, ResourceKind.GROUP)
    seen = 0
    for row in (*COMMANDS.values(), *OPERATIONS.values()):
        needed = [permission for permission in row if permission.kind in of_queues]
        if not needed or set(needed) <= {matrix.INSPECT}:
            continue
        seen += 1
        for argument in {permission.argument or "queue" for permission in needed} - {""}:
            arguments = {"queue": "q", "group": "g", "app": "a", argument: "~own"}
            for principal in (ANN, Principal("root", superuser=True)):
                ordinary = {**arguments, argument: "own"}
                policy.admit(principal, tuple(needed), ordinary.get)
                if any(permission.when is not When.ALWAYS for permission in needed) and len(needed) == 1:
                    continue
                with pytest.raises(NotAuthorized, match=r"'~own.*the broker's own"):
                    policy.admit(principal, tuple(needed), arguments.get)
    assert seen > 30
