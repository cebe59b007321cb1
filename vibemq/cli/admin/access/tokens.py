"""`vibemq-admin token`: secrets that stand for a user of a running broker."""

from typing import Annotated, Any

import typer

from vibemq.auth.tokens import id_of
from vibemq.cli.admin.access import rules
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, DryRun, Json, Timeout, Url, duration_option, user_names
from vibemq.cli.online import ask, ask_all
from vibemq.cli.output import Lines, Output, instant_text, table, would
from vibemq.errors import Forbidden

app = typer.Typer(help="Access tokens of a running broker.", no_args_is_help=True)


def _user_option(text: str) -> Any:
    return typer.Option("--user", "-u", metavar="USER", help=text, autocompletion=user_names)


@app.command()
def create(
    user: Annotated[str | None, _user_option("For whom the token stands; default: the user of --url.")] = None,
    label: Annotated[str, typer.Option("--label", help="What it is for; lists show it.")] = "",
    expires: Annotated[
        int | None, duration_option("--expires", "How long it is valid; default: until it is revoked.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="RESOURCE=ACTIONS",
            help="Allow no more than this, and no more than the user may; may be repeated. Default: all that it may.",
        ),
    ] = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Make an access token and print it, this once. It is taken wherever a password or a token is.

    Example: TOKEN=$(vibemq-admin token create --user spark --expires 90d --label nightly)

    Example: vibemq-admin token create --user spark --allow 'orders.*=subscribe' --allow 'transactions:nightly*=all'
    """
    narrowed = {"permissions": [rules.narrowing(text) for text in allow]} if allow else {}
    lasting = {} if expires is None else {"expires_ms": expires}
    name = user or _own_name(url, timeout)
    found = ask(url, timeout, "token.create", dry_run=dry_run, user=name, label=label, **lasting, **narrowed)
    out = Output(json=json)
    until = f"valid until {instant_text(found['expires_at'])}" if found["expires_at"] else "valid until it is revoked"
    if dry_run:
        out.emit(found, f"an access token of user {found['user']}, {until}, would be made")
        return
    out.note(f"access token {found['token_id']} of user {found['user']}, {until}; it is not shown again")
    out.emit(found, Lines(f"{found['token']}\n"))


def _own_name(url: str, timeout: float) -> str:
    """
    Raises:
        Forbidden: there are no users, whose token it could be.
    """
    asking = ask(url, timeout, "user.self")
    if not asking.get("authentication", True):
        raise Forbidden(
            "this broker has no authentication: everybody may do everything, and no token is needed; start it with "
            "auth.superuser and auth.superuser_password, then add users"
        )
    return str(asking["user"])


@app.command("ls")
def list_tokens(
    user: Annotated[str | None, _user_option("Only those of this user; default: all that you may see.")] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """List access tokens with their last use. The tokens themselves are never shown."""
    tokens = ask_all(url, timeout, "token.list", "tokens", **_whose(url, timeout, user))
    columns = ("token", "user", "label", "created", "expires", "last used", "allowed")
    Output(json=json).emit_many(tokens, table(columns, [_row(token) for token in tokens]))


def _whose(url: str, timeout: float, user: str | None) -> dict[str, str]:
    """Without a user: nobody in particular for superusers, else whoever asks."""
    if user is not None:
        return {"user": user}
    asking = ask(url, timeout, "user.self")
    return {} if asking["superuser"] else {"user": asking["user"]}


def _row(token: dict[str, Any]) -> tuple[object, ...]:
    instants = (instant_text(token[name] or 0) for name in ("created_at", "expires_at", "used_at"))
    narrowed = token["permissions"]
    allowed = "all that the user may" if narrowed is None else " ".join(map(rules.rule_of, narrowed)) or "nothing"
    if left_out := token.get("permissions_left_out"):
        allowed += f" and {left_out} more"
    return (token["token_id"], token["user"], token["label"], *instants, allowed)


@app.command()
def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="Of the token, as `token ls` shows it.")],
    user: Annotated[str | None, _user_option("For whom it stands; default: anybody, for superusers, else you.")] = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Take an access token away, and close its connections. A token that leaked may be given whole.

    Example: vibemq-admin token revoke 3f9c02d4a1b7
    """
    token_id = id_of(token) or token
    found = ask(url, timeout, "token.revoke", dry_run=dry_run, token_id=token_id, **_whose(url, timeout, user))
    label = f" ({found['label']})" if found["label"] else ""
    done = would("revoked", dry_run=dry_run)
    Output(json=json).emit(found, f"access token {found['token_id']}{label} of user {found['user']}: {done}")
