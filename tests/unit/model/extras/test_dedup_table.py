"""`DedupTable` behaves as one dict, whatever the size of its pages."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from vibemq.model.extras import dedup_table
from vibemq.model.extras.dedup_table import DedupTable, remembered

IDS = st.integers(0, 30).map(lambda number: b"%d" % number)
MOVES = st.one_of(
    st.tuples(st.just("add"), st.lists(IDS, unique=True, max_size=9)),
    st.tuples(st.just("put"), IDS),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("forget"), st.lists(IDS, max_size=9)),
    st.tuples(st.just("clear"), st.just([])),
)


def play(table: DedupTable, plain: dict[bytes, int], number: int, verb: str, ids: list[bytes] | bytes) -> None:
    """One move of both. Two moves each come at the same instant."""
    published_at = number // 2
    match verb, ids:
        case "add", list():
            values = [remembered(number * 10 + place, published_at) for place in range(len(ids))]
            table.add(ids, values)
            plain.update(zip(ids, values, strict=True))
        case "put", bytes():
            # As the store does, so that the youngest stands at the end.
            if ids in table:
                del table[ids], plain[ids]
            table[ids] = plain[ids] = remembered(number * 10, published_at)
        case "delete", bytes():
            if ids in plain:
                del table[ids], plain[ids]
        case "forget", list():
            table.forget_published(ids, published_at)
            for dedup_id in ids:
                if plain.get(dedup_id, -1) >> dedup_table.DEDUP_SEQUENCE_BITS == published_at:
                    del plain[dedup_id]
        case _:
            table.clear()
            plain.clear()


@given(moves=st.lists(MOVES, max_size=40), page=st.integers(1, 12), asked=st.lists(IDS, max_size=4))
def test_it_holds_what_a_dict_holds(
    moves: list[tuple[str, list[bytes] | bytes]], page: int, asked: list[bytes]
) -> None:
    with patch.object(dedup_table, "PAGE_IDS_MAX", page):
        table, plain = DedupTable(), dict[bytes, int]()
        for number, move in enumerate(moves):
            play(table, plain, number, *move)
            assert len(table) == len(plain)
            assert bool(table) == bool(plain)
        assert table == plain
        assert sorted(table.oldest_first()) == sorted(plain.items())
        assert list(table.latest_first()) == list(table.oldest_first())[::-1]
        assert DedupTable(table) == plain
        assert table.isdisjoint(asked) == plain.keys().isdisjoint(asked)
        assert [table.get(dedup_id) for dedup_id in asked] == [plain.get(dedup_id) for dedup_id in asked]
        assert [dedup_id in table for dedup_id in asked] == [dedup_id in plain for dedup_id in asked]


@given(moves=st.lists(MOVES.filter(lambda move: move[0] != "add"), max_size=40), page=st.integers(1, 5))
def test_the_order_is_that_of_a_dict(moves: list[tuple[str, list[bytes] | bytes]], page: int) -> None:
    with patch.object(dedup_table, "PAGE_IDS_MAX", page):
        table, plain = DedupTable(), dict[bytes, int]()
        for number, move in enumerate(moves):
            play(table, plain, number, *move)
        assert list(table.oldest_first()) == list(plain.items())
        assert list(table) == list(plain)


@given(
    moves=st.lists(st.one_of(MOVES.filter(lambda move: move[0] != "add"), st.integers(0, 4)), max_size=40),
    page=st.integers(1, 5),
    front=st.integers(1, 5),
)
def test_the_first_ids_are_forgotten_in_their_order(
    moves: list[tuple[str, list[bytes] | bytes] | int], page: int, front: int
) -> None:
    with patch.multiple(dedup_table, PAGE_IDS_MAX=page, _FRONT=front):
        table, plain = DedupTable(), dict[bytes, int]()
        for number, move in enumerate(moves):
            if isinstance(move, tuple):
                play(table, plain, number, *move)
                continue
            over = set(list(plain.values())[:move])
            expected = list(plain.items())[: max(min(move, 3), 1)]
            assert table.forget_first(3, 1, over.__contains__) == [value for _, value in expected]
            for dedup_id, _ in expected:
                del plain[dedup_id]
            assert list(table.oldest_first()) == list(plain.items())


@given(steps=st.lists(st.tuples(st.integers(1, 7), st.integers(0, 9)), max_size=60))
def test_no_page_is_added_to_more_often_than_it_may_be(steps: list[tuple[int, int]]) -> None:
    """However much is deleted from it meanwhile: a dict has no room again for that. Empty pages are let go."""
    with patch.object(dedup_table, "PAGE_IDS_MAX", 10):
        table = DedupTable()
        added: dict[int, list[bytes]] = {}
        pages = []
        number = 0
        for count, gone in steps:
            ids = [b"%d" % place for place in range(number, number + count)]
            number += count
            table.add(ids, range(count))
            if not any(table._youngest is page for page in pages):
                pages.append(table._youngest)
            added.setdefault(id(table._youngest), []).extend(ids)
            for dedup_id in list(table)[:gone]:
                del table[dedup_id]
            assert all(table._older[:1])
        assert all(len(ids) <= 10 for ids in added.values())
