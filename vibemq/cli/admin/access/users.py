"""`vibemq-admin user`: who may log in to a running broker, and what they may do."""

from typing import Annotated, Any

import typer

from vibemq.auth.passwords import hash_password
from vibemq.cli.admin.access import rules
from vibemq.cli.admin.access.passwords import HASH_BYTES_MAX, PasswordStdin, line_of_stdin, new_password
from vibemq.cli.exits import ExitCode, Usage
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, DryRun, Json, Timeout, Url, User, Yes, user_names
from vibemq.cli.online import ask, ask_all
from vibemq.cli.output import Lines, Output, count_text, facts, instant_text, table, would
from vibemq.errors import UserNotFound

app = typer.Typer(help="Users of a running broker, and their permissions.", no_args_is_help=True)

Actions = Annotated[str, typer.Argument(metavar="ACTIONS", help=rules.ACTIONS_HELP)]
Resource = Annotated[str, typer.Argument(metavar="RESOURCE", help=rules.RESOURCE_HELP)]


@app.command()
def add(
    user: Annotated[str, typer.Argument(metavar="USER", help="1 to 64 letters, digits, and - _ .")],
    superuser: Annotated[bool, typer.Option("--superuser", help="The user may do everything.")] = False,
    password_stdin: PasswordStdin = False,
    hash_stdin: Annotated[
        bool,
        typer.Option("--hash-stdin", help="Read a hash of the password from standard input, as `user hash` prints it."),
    ] = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Add a user, who may do nothing yet (see `user grant`). Asks for the password.

    Example: vibemq-admin user add ann

    Example: vibemq-admin user add shop --password-stdin < shop.password
    """
    if password_stdin and hash_stdin:
        raise Usage("standard input is either the password or its hash; give one of the two options")
    secret = (
        {"password_hash": line_of_stdin("hash", HASH_BYTES_MAX)}
        if hash_stdin
        else {"password": new_password(user, from_stdin=password_stdin)}
    )
    found = ask(url, timeout, "user.add", dry_run=dry_run, user=user, superuser=superuser, **secret)
    kind = "superuser" if superuser else "user"
    Output(json=json).emit({**found, "superuser": superuser}, f"{kind} {user}: {would('added', dry_run=dry_run)}")


@app.command()
def change(
    user: User,
    superuser: Annotated[
        bool, typer.Option("--superuser/--no-superuser", help="Whether the user may do everything.", show_default=False)
    ],
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Make a user a superuser, or an ordinary user with the permissions that it had. The access tokens of a superuser
    may do everything, except narrower ones; the answer says how many there are.

    Example: vibemq-admin user change ann --superuser
    """
    found = ask(url, timeout, "user.change", dry_run=dry_run, user=user, superuser=superuser)
    # An older broker does not count them.
    count = found.get("tokens", 0)
    verb, too = ("would be", "would") if dry_run else ("is", "are")
    tokens = f"; so {too} its access tokens: {count} (vibemq-admin token ls --user {user})" if count else ""
    if not superuser:
        verb = "would not be" if dry_run else "is not"
    Output(json=json).emit(found, f"user {user}: {verb} a superuser now{tokens}")


@app.command("rm")
def remove(
    user: User,
    yes: Yes = False,
    dry_run: DryRun = False,
    missing_ok: Annotated[bool, typer.Option("--missing-ok", help="Succeed also if the user does not exist.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Remove a user and its tokens, and close its connections. Its groups and messages stay."""
    out = Output(json=json)
    try:
        ask(url, timeout, "user.show", user=user)
    except UserNotFound:
        if not missing_ok:
            raise
        out.emit({"user": user, "removed": False, "dry_run": dry_run}, f"user {user} does not exist")
        return
    tokens = len(ask_all(url, timeout, "token.list", "tokens", user=user))
    if not dry_run:
        out.confirm(f"Remove user {user} with {count_text(tokens, 'access token')}?", yes=yes)
    ask(url, timeout, "user.remove", dry_run=dry_run, user=user)
    out.emit(
        {"user": user, "removed": not dry_run, "tokens": tokens, "dry_run": dry_run},
        f"user {user} {would('removed', dry_run=dry_run)}, with {count_text(tokens, 'access token')}",
    )


@app.command("ls")
def list_users(url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """List all users."""
    users = ask_all(url, timeout, "user.list", "users")
    rows = (
        (user["user"], user["superuser"], user["source"], _instant(user["created_at"]), _instant(user["changed_at"]))
        for user in users
    )
    Output(json=json).emit_many(users, table(("user", "superuser", "kept in", "created", "changed"), list(rows)))


@app.command()
def show(user: User, url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """Show one user and its permissions."""
    found = ask(url, timeout, "user.show", user=user)
    out = Output(json=json)
    if json:
        out.emit(found, "")
        return
    pairs = [
        ("superuser", found["superuser"]),
        ("kept in", found["source"]),
        ("created", _instant(found["created_at"])),
        ("changed", _instant(found["changed_at"])),
    ]
    out.console.print(facts(pairs, title=f"user {found['user']}"))
    if found["permissions"]:
        out.console.print()
        out.console.print(rule_table(found["permissions"], title="permissions"))


@app.command()
def passwd(
    user: Annotated[
        str | None,
        typer.Argument(metavar="[USER]", help="Default: the user of --url.", autocompletion=user_names),
    ] = None,
    password_stdin: PasswordStdin = False,
    keep_connections: Annotated[
        bool, typer.Option("--keep-connections", help="Leave connections open that logged in with the old password.")
    ] = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Change a password; the default is your own. Connections that logged in with the old one are closed. Access tokens
    of the user stay valid; the answer says how many there are.

    Example: vibemq-admin user passwd ann
    """
    name = user or ask(url, timeout, "user.self")["user"]
    password = new_password(name, from_stdin=password_stdin)
    wanted = {"user": name, "password": password, "keep_connections": keep_connections}
    found = ask(url, timeout, "user.password", dry_run=dry_run, **wanted)
    # An older broker does not count them.
    left = found.get("tokens", 0)
    verb, stay = ("would be", "would stay") if dry_run else ("is", "stay")
    tokens = f"; its access tokens {stay} valid: {left} (vibemq-admin token ls --user {name})" if left else ""
    Output(json=json).emit(found, f"user {name}: the password {verb} changed{tokens}")


@app.command()
def grant(
    user: User,
    actions: Actions,
    resource: Resource,
    replace: Annotated[
        bool, typer.Option("--replace", help="Allow nothing else on this RESOURCE, in place of adding to it.")
    ] = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Allow a user something, from its next request on.

    Example: vibemq-admin user grant ann publish,subscribe 'orders.*'

    Example: vibemq-admin user grant spark transact 'transactions:nightly*'
    """
    rule = rules.rule(actions, resource)
    only = {} if replace else {"only": rule["actions"]}
    found = ask(url, timeout, "user.grant", dry_run=dry_run, user=user, **rule, **only)
    verb = "would be granted" if dry_run else "may"
    Output(json=json).emit(found, f"user {user}: {verb} {rules.actions_of(found)} on {rules.resource_of(found)}")


@app.command()
def revoke(
    user: User,
    actions: Actions,
    resource: Resource,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Take a permission away, at once. RESOURCE is written as it was granted. Exit code 3 if there was none.

    Example: vibemq-admin user revoke ann all 'orders.*'
    """
    taken = rules.rule(actions, resource, taken_away=True)
    found = ask(url, timeout, "user.revoke", dry_run=dry_run, user=user, **taken)
    word = would("revoked", dry_run=dry_run) if found["revoked"] else "there was no such permission"
    Output(json=json).emit(found, f"user {user}: {actions} on {rules.resource_of(found)}: {word}")
    if not found["revoked"]:
        raise typer.Exit(ExitCode.NOT_FOUND)


@app.command()
def check(
    words: Annotated[
        list[str],
        typer.Argument(metavar="[USER] ACTION RESOURCE", help="Without USER: every user who may."),
    ],
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Whether a user may do something, and by which permission. Exit code 1 if not. Without a user, superusers see who
    may.

    Example: vibemq-admin user check ann publish orders.eu

    Example: vibemq-admin user check publish orders.eu
    """
    if not 2 <= len(words) <= 3:
        raise Usage("give USER ACTION RESOURCE, such as ann publish orders.eu, or ACTION RESOURCE")
    *user, action, resource = words
    wanted = {"action": action, **rules.resource(resource)}
    if not user:
        _check_everybody(url, timeout, wanted, Output(json=json))
        return
    found = ask(url, timeout, "user.check", user=user[0], **wanted)
    verb = "may" if found["allowed"] else "may not"
    sentence = f"user {found['user']} {verb} {action} on {resource}: {_reason(found)}"
    Output(json=json).emit(found, sentence)
    if not found["allowed"]:
        raise typer.Exit(ExitCode.FAILED)


def _check_everybody(url: str, timeout: float, wanted: dict[str, str], out: Output) -> None:
    users = ask_all(url, timeout, "user.allowed", "users", **wanted)
    out.emit_many(users, table(("user", "by"), [(user["user"], _reason(user)) for user in users]))


def _reason(found: dict[str, Any]) -> str:
    if found["superuser"]:
        return "superuser"
    return "no permission" if found["rule"] is None else rules.rule_of(found["rule"])


@app.command("hash")
def print_hash(password_stdin: PasswordStdin = False, json: Json = False) -> None:
    """Print the hash of a password, for the settings file or for `user add --hash-stdin`. Needs no broker."""
    hashed = hash_password(new_password("", from_stdin=password_stdin))
    out = Output(json=json)
    out.emit({"password_hash": hashed}, Lines(f"{hashed}\n"))


def rule_table(permissions: list[dict[str, Any]], *, title: str) -> Any:
    rows = [(rules.resource_of(rule), rules.actions_of(rule)) for rule in permissions]
    return table(("resource", "actions"), rows, title=title)


def _instant(epoch_ms: int | None) -> str:
    return instant_text(epoch_ms or 0)
