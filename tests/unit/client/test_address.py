import pytest

from vibemq.client.address import ClientSettings, compressions, parse, settings_of
from vibemq.errors import ConfigInvalid


def test_a_url_with_everything() -> None:
    settings = parse(
        "VibeMQ://al%40ice:s%3Aecret+@broker.example:3000/"
        "?tls=yes&skipCertValidation=1&keepAlive=20&commandTimeout=7&compression=gzip,brotli&compressionThreshold=0"
        "&reconnectMaxAttempts=0&reconnectInitialDelay=2&reconnectMaxDelay=60&reconnectExponentialBackoff=false"
        "&queues=a,%20b&name=my%20app&token=t"
    )
    assert (settings.host, settings.port) == ("broker.example", 3000)
    assert (settings.username, settings.password, settings.token) == ("al@ice", "s:ecret+", "t")
    assert (settings.tls, settings.verify_certificate) == (True, False)
    assert (settings.keep_alive, settings.command_timeout) == (20, 7)
    assert (settings.compression, settings.compression_threshold) == (("gzip", "brotli"), 0)
    policy = settings.reconnect
    assert (policy.max_attempts, policy.initial_delay, policy.max_delay) == (None, 2, 60)
    assert not policy.exponential
    assert (settings.queues, settings.name) == (("a", "b"), "my app")


def test_the_shortest_forms() -> None:
    assert parse("vibemq://host") == parse("host=host")
    assert parse("vibemq://host").port == 2925
    assert parse("").host == "localhost"
    assert parse("vibemqs://host").tls
    assert parse("vibemq://:t%3Aken@host") == parse("vibemq://host?token=t%3Aken")
    assert parse("vibemq://[::1]:99").host == "::1"


def test_key_value_with_quotes_and_escapes() -> None:
    settings = parse(r'Host = h ; PORT=1; username=u; password="a;b=\"c\\\;\=" ;UseTls=true;')
    assert (settings.host, settings.port, settings.tls) == ("h", 1, True)
    assert settings.password == r'a;b="c\;='


def test_secrets_stay_out_of_the_representation() -> None:
    assert "hidden" not in repr(parse("vibemq://u:hidden@h?token=hidden"))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("vibemq://h:2925/tls=true", "'/tls=true' behind its host"),
        ("vibemq://h/orders?name=x", "'/orders' behind its host"),
        ("vibemq://h#&tls=true", "write %23"),
        ("vibemq://user:pass#word@h", "write %23"),
        ("vibemq://user:pass/word@h", "write %2F"),
        ("vibemq://h?tls=true&tls=false", "'tls' twice"),
        ("vibemq://h?tls=true&useTls=true", "'useTls' twice"),
        ("vibemq://h?reconnectMaxDelay=3&reconnectMaxDelay=4", "'reconnectMaxDelay' twice"),
        ("vibemq://h;tls=true", "host must be"),
        ("vibemq://a,b", "host must be"),
        ("vibemq://h\n?tls=true", "line break"),
        ("vibemq://u%ff:p@h", "no UTF-8"),
        ("host=a;host=b", "'host' twice"),
        ("host=", "host must be"),
        ("host=h:3", "without its port"),
        ('host=h;username=u;password="abc"def', "between the closing"),
        ("vibemq://h?comandTimeout=3", "did you mean 'commandtimeout'"),
        ("host=h;usrname=x", "did you mean 'username'"),
        ("host=h;zzz=x", "known are"),
        ("vibemq://h?port=3", r"does not belong behind the '\?'"),
        ("vibemq://h?tls", "has no '='"),
        ("vibemq://", "names no host"),
        ("vibemq://h:99999", "no number of 1 to 65535"),
        ("amqp://h", "not a scheme of VibeMQ"),
        ("myhost:1234", "vibemq://myhost:1234"),
        ("host=h;tls", "'tls' has no '='"),
        ("host=h;=5;port=7", "a '=' with no key in front of it"),
        ("=h", "a '=' with no key in front of it"),
        ("vibemq://[::1]2925", "'2925' behind the ']'"),
        ("vibemq://u:p@[::1]x:2925", "'x:2925' behind the ']'"),
        ("host=h;port=0", "out of range"),
        ("host=h;port=x", "not a whole number"),
        ("vibemq://h?tls=ja", "tls='ja' is neither true nor false"),
        ("vibemq://h?useTls=", "write useTls=true or useTls=false"),
        ("host=h;publishConnection=maybe", "neither true nor false"),
        ("vibemq://h?commandTimeout=0", "out of range"),
        (f"vibemq://h?commandTimeout={'9' * 400}", "out of range"),
        (f"vibemq://h?reconnectMaxDelay={'9' * 400}", "out of range"),
        (f"vibemq://h?compressionThreshold={'9' * 5000}", "5,000 digits, which is out of range"),
        ("vibemq://h?compression=zip", "choose auto, none"),
        ('host="h', "closing"),
        ("username=u", "needs a password"),
        ("vibemq://:one@h?token=two", "two tokens"),
        ("vibemq://h?reconnectInitialDelay=9&reconnectMaxDelay=3", "delays must be"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ConfigInvalid, match=hint):
        parse(text)


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_address_of_a_user_is_no_address(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="the address is empty"):
        settings_of(text)


@pytest.mark.parametrize("text", ["host=h;port=2_925", "host=h;port=２９２５", "vibemq://h?commandTimeout=2_0"])
def test_a_number_is_written_in_plain_digits(text: str) -> None:
    with pytest.raises(ConfigInvalid, match="is not a whole number"):
        parse(text)


@pytest.mark.parametrize("off", ["tls=no", "useTls=false"])
def test_the_scheme_and_an_option_do_not_contradict_each_other(off: str) -> None:
    with pytest.raises(ConfigInvalid, match="contradict"):
        parse(f"vibemqs://h?{off}")
    assert parse("vibemqs://h?tls=yes").tls


@pytest.mark.parametrize(
    "text",
    [
        "vibemq://ann:hush?quiet@h",
        "vibemq://ann:12?quiet@h",
        "vibemq://ann:12?tls=quiet@h",
        "vibemq://ann:a@12?quiet=1@h",
        "vibemq://ann:12/hush?quiet@h",
        "vibemq://ann:hush/quiet@h",
        "vibemq://ann:hush#quiet@h",
        "vibemq://ann:hush\u2100quiet@h",
        "vibemq://ann:hush[quiet@h",
        "ann:hush@quiet@h",
        "host=ann:hush@h",
        "host=h;username=ann;password=two;hush",
        "host=h;username=ann;password=two;hush;tls=true",
        "host=h;username=ann;password=two;hush=quiet",
        "host=h;username=ann;password=hush://quiet;zzz=x",
    ],
)
def test_an_error_has_no_piece_of_a_password(text: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse(text)
    assert "hush" not in str(caught.value)
    assert "quiet" not in str(caught.value)


def test_a_password_may_look_like_a_url() -> None:
    assert parse("host=h;username=u;password=a://b").password == "a://b"


@pytest.mark.parametrize(("word", "tls"), [("on", True), ("1", True), ("YES", True), ("off", False), ("0", False)])
def test_a_truth_value_has_several_words(word: str, tls: bool) -> None:
    assert parse(f"vibemq://h?tls={word}").tls is tls


def test_a_delay_above_the_default_maximum_raises_the_maximum() -> None:
    assert parse("vibemq://h?reconnectInitialDelay=90").reconnect.max_delay == 90
    assert parse("vibemq://h?reconnectMaxDelay=0").reconnect.initial_delay == 0


def test_compression_words() -> None:
    assert compressions("none") == compressions("") == ()
    assert compressions("auto") == ("brotli", "gzip")


@pytest.mark.parametrize("name", ["keep_alive", "command_timeout"])
@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_times_that_are_not_above_0_are_refused(name: str, seconds: float) -> None:
    with pytest.raises(ConfigInvalid, match=f"{name} must be above 0"):
        ClientSettings(**{name: seconds})  # type: ignore[arg-type]
