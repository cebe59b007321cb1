from vibemq.protocols.eventmesh.messages.recurring import KEY_BYTES_MAX, KEYS_MAX, Recurring


def test_what_comes_again_is_remembered() -> None:
    recurring = Recurring[int]()
    for times, known in ((1, {}), (2, {b"a": 2}), (3, {b"a": 3})):
        recurring.remember(b"a", times)
        assert recurring.known == known
    for key in (b"", b"x" * (KEY_BYTES_MAX + 1)):
        recurring.remember(key, 1)
        recurring.remember(key, 1)
    assert recurring.known == {b"a": 3}


def test_no_more_is_kept_than_a_table_holds() -> None:
    recurring = Recurring[int]()
    keys = [b"%d" % number for number in range(KEYS_MAX + 1)]
    for key in keys[:-1] * 2:
        recurring.remember(key, 1)
    assert len(recurring.known) == KEYS_MAX
    for key in keys[-1:] * 2:
        recurring.remember(key, 1)
    assert list(recurring.known) == keys[-1:]
