"""Sessions of browsers: how many, for how long, and what ends them."""

import os

from vibemq.model.access import Principal
from vibemq.web.api.sessions import (
    SESSIONS_MAX,
    SESSIONS_OF_USER_MAX,
    WebSessions,
    cookie_header,
    cookie_in,
    digest_of,
)

ADA = Principal("ada")
IDLE_S, MOST_S = 100.0, 1_000.0


class Ended(dict[str, str]):
    """Why a user may not go on."""

    def reason(self, principal: Principal) -> str:
        return self.get(principal.name, "")


def make(ended: Ended | None = None) -> WebSessions:
    ended = Ended() if ended is None else ended
    return WebSessions(ended.reason, idle_s=IDLE_S, most_s=MOST_S)


def test_a_session_is_found_by_its_cookie_alone() -> None:
    sessions = make()
    session = sessions.begin("secret", ADA, 0.0)
    assert sessions.find("secret", 1.0) is session
    assert sessions.find("other", 1.0) is None
    assert sessions.find(session.digest, 1.0) is None


def test_only_the_hash_is_kept() -> None:
    sessions = make()
    assert "secret" not in repr(vars(sessions)) + repr(sessions.begin("secret", ADA, 0.0))


def test_it_ends_when_it_is_idle() -> None:
    sessions = make()
    sessions.begin("c", ADA, 0.0)
    assert sessions.find("c", IDLE_S - 1)
    assert sessions.find("c", 2 * IDLE_S - 2)
    assert sessions.find("c", 3 * IDLE_S - 2) is None
    assert not len(sessions)


def test_a_stream_that_is_read_is_use() -> None:
    sessions = make()
    for cookie in ("read", "idle"):
        sessions.begin(cookie, ADA, 0.0)
    session = sessions.find("read", 0.0)
    assert session is not None
    for moment in range(0, 2 * int(IDLE_S), 10):
        sessions.touch(session.digest, moment)
        sessions.tidy(moment)
    assert (session.ended, len(sessions)) == ("", 1)


def test_it_ends_after_its_longest_time_however_busy() -> None:
    sessions = make()
    sessions.begin("c", ADA, 0.0)
    assert all(sessions.find("c", moment) for moment in range(0, int(MOST_S), 50))
    assert sessions.find("c", MOST_S) is None


def test_what_is_over_by_time_ends_though_nobody_asks() -> None:
    sessions = make()
    for cookie, end in (("idle", IDLE_S), ("busy", MOST_S)):
        session = sessions.begin(cookie, ADA, 0.0)
        for moment in range(0, int(end), 50):
            sessions.find("busy", moment)
            sessions.tidy(moment)
        sessions.tidy(end)
        assert session.ended


def test_a_revoked_login_ends_at_once() -> None:
    ended = Ended()
    sessions = make(ended)
    session = sessions.begin("c", ADA, 0.0)
    sessions.begin("d", Principal("bob"), 0.0)
    ended["ada"] = "user 'ada' was removed"
    sessions.end_revoked({"ada"})
    assert session.ended == "user 'ada' was removed"
    assert sessions.find("c", 1.0) is None
    assert sessions.find("d", 1.0)


def test_no_request_passes_before_anybody_was_told() -> None:
    ended = Ended()
    sessions = make(ended)
    sessions.begin("c", ADA, 0.0)
    ended["ada"] = "the password was changed"
    assert sessions.find("c", 1.0) is None


def test_of_too_many_the_one_that_was_idle_longest_ends() -> None:
    sessions = make()
    for number in range(SESSIONS_MAX):
        sessions.begin(f"c{number}", Principal(f"u{number}"), 0.0)
    sessions.find("c0", 1.0)
    sessions.begin("new", ADA, 2.0)
    assert len(sessions) == SESSIONS_MAX
    assert sessions.find("c0", 3.0)
    assert sessions.find("c1", 3.0) is None


def test_a_user_has_few() -> None:
    sessions = make()
    for number in range(SESSIONS_OF_USER_MAX + 1):
        sessions.begin(f"c{number}", ADA, 0.0)
    assert len(sessions) == SESSIONS_OF_USER_MAX
    assert sessions.find("c0", 1.0) is None


def test_who_has_an_access_token_of_a_user_ends_no_sessions_but_its_own() -> None:
    sessions = make()
    by_password = sessions.begin("password", ADA, 0.0)
    by_other = sessions.begin("other", Principal("ada", token_id="other"), 0.0)
    narrow = Principal("ada", token_id="narrow")
    for number in range(3 * SESSIONS_OF_USER_MAX):
        sessions.begin(f"c{number}", narrow, 0.0)
    assert (by_password.ended, by_other.ended) == ("", "")
    assert len(sessions) == 1 + SESSIONS_OF_USER_MAX
    for number in range(3 * SESSIONS_OF_USER_MAX):
        sessions.begin(f"p{number}", ADA, 0.0)
    assert (by_password.ended, by_other.ended) == ("too many sessions of the user", "")
    assert len(sessions) == 2 * SESSIONS_OF_USER_MAX


def test_log_out_everywhere() -> None:
    sessions = make()
    for number in range(3):
        sessions.begin(f"c{number}", ADA, 0.0)
    sessions.begin("bob's", Principal("bob"), 0.0)
    assert sessions.end_all_of("ada") == 3
    assert len(sessions) == 1


def test_guessing_cookies_finds_none() -> None:
    sessions = make()
    sessions.begin("c", ADA, 0.0)
    assert not any(sessions.find(os.urandom(32).hex(), 1.0) for _ in range(100_000))


def test_a_cookie_that_is_nearly_the_right_one_finds_none() -> None:
    sessions, cookie = make(), os.urandom(32).hex()
    digest = sessions.begin(cookie, ADA, 0.0).digest
    near = [cookie[:-1], cookie[1:], f"{cookie}0", f" {cookie}", f"{cookie}\n", f"x{cookie}", digest, ""]
    near += [cookie[:at] + ("1" if cookie[at] == "0" else "0") + cookie[at + 1 :] for at in range(len(cookie))]
    assert not any(sessions.find(other, 1.0) for other in near)
    assert sessions.find(cookie, 1.0) is not None


def test_cookies_are_for_programs_of_the_same_site_only() -> None:
    plain, secure = cookie_header("v", secure=False), cookie_header("v", secure=True)
    assert plain == "vibemq_session=v; HttpOnly; SameSite=Strict"
    assert secure == "__Secure-vibemq_session=v; HttpOnly; SameSite=Strict; Secure"


def test_the_cookie_of_a_header() -> None:
    assert cookie_in("a=b; vibemq_session=x; c=d") == "x"
    assert cookie_in("vibemq_session=x; __Secure-vibemq_session=y") == "y"
    assert cookie_in("vibemq_session=first; vibemq_session=second") == "first"
    assert cookie_in("") == cookie_in("other=1") == ""


def test_odd_text_has_a_digest_too() -> None:
    assert digest_of("\udce4") != digest_of("")
