"""A page of letters, cut into steps."""

from collections import deque

from vibemq.model.records import DeadFacts, Reason
from vibemq.model.stored import DeadLetter
from vibemq.server.jobs.letters import LetterPage


def letter(dead_id: int, queue: str) -> DeadLetter:
    facts = DeadFacts(dead_id, dead_id, Reason.REJECTED, "bad", 1, 1, 0, 0)
    return DeadLetter(facts, 1, queue, "", 0, 1, b"row")


def page_of(**queues: list[int]) -> LetterPage:
    by_queue = {name: deque(letter(dead_id, name) for dead_id in ids) for name, ids in queues.items()}
    page = LetterPage(by_queue, {}, last=9, is_last=True)
    page.examined = sum(map(len, queues.values()))
    return page


def test_the_last_step_has_the_cursor_and_what_the_others_have_not_counted() -> None:
    page = page_of(a=[1, 2], b=[3])
    first = page.take(2)
    assert (first.cursor, first.examined, first.passed) == (0, 2, 0)
    page.note_passed(1)
    last = page.take(2)
    assert (last.cursor, last.examined, last.passed) == (9, 2, 1)
    assert page.is_done


def test_the_cursor_stays_before_a_page_of_which_a_queue_takes_no_letters() -> None:
    page = page_of(a=[1, 2], b=[3])
    assert page.take(1).queue == "a"
    assert page.has_others("a")
    page.set_aside("a")
    assert not page.is_done
    last = page.take(5)
    assert (last.queue, last.cursor, last.examined) == ("b", 0, 1)
    assert page.is_done
    assert not page.is_complete


def test_a_page_of_letters_that_nobody_takes_is_done() -> None:
    page = page_of(a=[1, 2])
    assert not page.has_others("a")
    page.take(1)
    page.set_aside("a")
    assert page.is_done
