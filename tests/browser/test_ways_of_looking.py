"""The console for those who enlarge it to 400 %, choose their own colours, want nothing to move, or open many tabs."""

from collections.abc import Callable
from typing import Any

import pytest

import vibemq.sync
from tests.browser.brokers import ServedBroker
from tests.browser.test_every_page import hostile_broker, places, show
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
__all__ = ["hostile_broker"]

Opener = Callable[..., Any]
SOME = ["", "dead-letters", "letter?id=12", "queue?queue=orders&tab=options"]
TABS = 12

WITHOUT_EDGE = """() => [
  ...document.querySelectorAll('button, a.button, input:not([type=range]), select, .card, .pill')]
  .filter((one) => one.checkVisibility() && !one.matches('.quiet, .close, summary, [type=checkbox], [type=radio]'))
  .filter((one) => { const style = getComputedStyle(one);
    return parseFloat(style.borderTopWidth) === 0 && !style.textDecorationLine.includes('underline') })
  .filter((one) => !one.closest('header.top, nav, th, .segments, [role=tablist]'))
  .map((one) => one.outerHTML.slice(0, 120))"""
UNSEEN_FOCUS = """() => { const one = document.activeElement, style = getComputedStyle(one);
  return one === document.body || style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0
    ? '' : one.outerHTML.slice(0, 120) }"""


CONTROLS = """() => [...document.querySelectorAll('a[href], button, input, select, textarea, summary')]
  .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.disabled && one.tabIndex >= 0)"""
FOCUSED = """() => { const one = document.activeElement, place = one.getBoundingClientRect();
  if (one === document.body) return '';
  const isThere = place.bottom > 0 && place.top < innerHeight && place.right > 0 && place.left < innerWidth;
  one.dataset.reached = 'yes';
  return isThere ? '' : one.outerHTML.slice(0, 120) }"""
TABS_MAX = 150
SEEN = """(state) => {
  Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
  document.dispatchEvent(new Event('visibilitychange')) }"""


@pytest.mark.parametrize("every_page", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("size", ["large", pytest.param("small", marks=pytest.mark.long)])
def test_every_control_is_reached_with_the_tabulator_and_then_seen(
    hostile_broker: ServedBroker, opened: Opener, size: str, *, every_page: bool
) -> None:
    page = opened(hostile_broker.origin, size=size)
    found = []
    for place in places() if every_page else SOME:
        show(page, hostile_broker, place)
        left: list[str] = []
        # A second time, for what came while the first was under way, such as a table whose figures were late.
        for _ in range(2):
            expected = min(page.evaluate(f"() => ({CONTROLS})().length"), TABS_MAX)
            for _ in range(expected + 10):
                page.keyboard.press("Tab")
                problems = filter(None, (page.evaluate(FOCUSED), page.evaluate(UNSEEN_FOCUS)))
                found += [f"{place}: the focus is not seen: {problem}" for problem in problems]
            left = page.evaluate(
                f"() => ({CONTROLS})().filter((one) => !one.dataset.reached).map((one) => one.outerHTML.slice(0, 120))"
            )
            if expected == TABS_MAX:
                left = []
            if not left:
                break
        found += [f"{place}: not reached: {what}" for what in left]
    assert not found


@pytest.mark.parametrize("every_page", [False, pytest.param(True, marks=pytest.mark.long)])
def test_at_400_percent_nothing_scrolls_sideways_but_what_says_so(
    hostile_broker: ServedBroker, opened: Opener, *, every_page: bool
) -> None:
    """1280 pixels at 400 % are 320 (WCAG 1.4.10)."""
    page = opened(hostile_broker.origin)
    page.set_viewport_size({"width": 320, "height": 640})
    found = []
    for place in places() if every_page else SOME:
        show(page, hostile_broker, place)
        wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        if wide > 0:
            found.append(f"{place}: it scrolls sideways by {wide}")
    assert not found


@pytest.mark.parametrize("every_page", [False, pytest.param(True, marks=pytest.mark.long)])
def test_with_forced_colours_controls_have_edges_and_the_focus_is_seen(
    hostile_broker: ServedBroker, opened: Opener, *, every_page: bool
) -> None:
    page = opened(hostile_broker.origin, forced_colors="active")
    found = []
    assert page.evaluate("() => matchMedia('(forced-colors: active)').matches")
    for place in places() if every_page else SOME:
        show(page, hostile_broker, place)
        found += [f"{place}: no edge: {what}" for what in page.evaluate(WITHOUT_EDGE)]
        for _ in range(14):
            page.keyboard.press("Tab")
            if what := page.evaluate(UNSEEN_FOCUS):
                found.append(f"{place}: the focus is not seen: {what}")
    assert not found


@pytest.mark.long(
    covered_by="tests/browser/test_ways_of_looking.py::test_with_forced_colours_controls_have_edges_and_the_focus_is_seen"
)
def test_pages_do_not_fade_into_each_other_for_those_who_want_nothing_to_move(
    hostile_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(hostile_broker.origin)
    page.context.add_init_script("addEventListener('pagereveal', (event) => { window.fades = !!event.viewTransition })")
    for wish, fades in (("reduce", False), ("no-preference", True)):
        page.emulate_media(reduced_motion=wish)
        show(page, hostile_broker, "queues")
        page.get_by_role("navigation").get_by_role("link", name="Jobs").click()
        page.get_by_role("heading", name="Jobs", level=1).wait_for()
        assert page.evaluate("() => window.fades") is fades, wish


def test_twelve_tabs_share_one_stream_and_survive_its_holder(open_broker: ServedBroker, opened: Opener) -> None:
    first = opened(open_broker.origin)
    streams: dict[Any, Any] = {}
    """Request -> the tab that holds it, while it is open."""

    def watch(tab: Any) -> None:
        tab.on("request", lambda request: "/api/v1/events" in request.url and streams.update({request: tab}))
        for over in ("requestfinished", "requestfailed"):
            tab.on(over, lambda request: streams.pop(request, None))

    tabs = [first, *(first.context.new_page() for _ in range(TABS - 1))]
    for tab in tabs:
        watch(tab)
        tab.goto(f"{open_broker.console}queues")
        tab.get_by_role("heading", name="Queues", level=1).wait_for()

    def all_show(name: str) -> None:
        with vibemq.sync.connect(open_broker.url) as mq:
            mq.create_queue(name)
        for tab in tabs:
            tab.get_by_role("link", name=name).wait_for()

    all_show("seen-by-all")
    wait_until(lambda: tabs[-1].evaluate("() => 1") == 1 and len(streams) == 1)
    [holder] = streams.values()
    tabs.remove(holder)
    holder.close()
    streams.clear()
    wait_until(lambda: tabs[-1].evaluate("() => 1") == 1 and len(streams) == 1)
    all_show("seen-by-the-others")


def test_what_a_tab_that_has_crashed_looked_at_is_not_asked_for_any_more(
    open_broker: ServedBroker, opened: Opener
) -> None:
    leader = opened(open_broker.origin)
    streams: list[str] = []
    leader.on("request", lambda request: "/api/v1/events" in request.url and streams.append(request.url))

    def looks_at(place: str) -> bool:
        return leader.evaluate("() => 1") == 1 and bool(streams) and place in streams[-1]

    leader.goto(f"{open_broker.console}queues")
    wait_until(lambda: looks_at("topic=queues"))
    other = leader.context.new_page()
    other.goto(f"{open_broker.console}queue?queue=crashed")
    other.get_by_role("heading", name="There is no queue of this name").wait_for()
    wait_until(lambda: looks_at("crashed"))
    with pytest.raises(Exception, match="crash"):
        other.goto("chrome://crash")
    wait_until(lambda: looks_at("topic=queues") and not looks_at("crashed"))


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_a_page_of_which_a_module_does_not_come_says_so(open_broker: ServedBroker, opened: Opener, motion: str) -> None:
    page = opened(open_broker.origin)
    page.emulate_media(reduced_motion=motion)
    page.route("**/parts/table.js", lambda route: route.fulfill(status=404, content_type="text/javascript"))
    page.goto(f"{open_broker.console}queues")
    page.get_by_text("The console has not loaded yet.").wait_for()
    page.unroute("**/parts/table.js")
    page.reload()
    page.get_by_role("heading", name="Queues", exact=True).wait_for()
    assert page.get_by_text("The console has not loaded yet.").count() == 0


def test_without_scripts_a_page_says_what_it_needs(open_broker: ServedBroker, opened: Opener) -> None:
    page = opened(open_broker.origin, java_script_enabled=False)
    page.goto(open_broker.console)
    assert page.locator("p.noscript").is_visible()
    assert not page.get_by_text("The console has not loaded yet.").is_visible()


def test_nobody_looks_no_stream_and_without_one_a_page_asks_and_says_so(
    open_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(open_broker.origin)
    with page.expect_response(lambda answer: "/api/v1/events" in answer.url and answer.ok):
        page.goto(f"{open_broker.console}queues")
    page.get_by_title("once a second").wait_for()
    with page.expect_event("requestfailed", lambda request: "/api/v1/events" in request.url):
        page.evaluate(SEEN, "hidden")
    with page.expect_response(lambda answer: "/api/v1/events" in answer.url and answer.ok):
        page.evaluate(SEEN, "visible")
    asking = opened(open_broker.origin)
    # As it is on plain http anywhere but on this machine.
    asking.add_init_script("Object.defineProperty(Navigator.prototype, 'locks', { value: undefined })")
    streams: list[str] = []
    asking.on("request", lambda request: "/api/v1/events" in request.url and streams.append(request.url))
    asking.goto(f"{open_broker.console}queues")
    asking.get_by_title("every 5 seconds").wait_for()
    with vibemq.sync.connect(open_broker.url) as mq:
        mq.create_queue("found-by-asking")
    asking.get_by_role("link", name="found-by-asking").wait_for()
    assert not streams


def test_a_tail_that_nobody_sees_is_not_followed_and_says_so_afterwards(
    hostile_broker: ServedBroker, opened: Opener
) -> None:
    page = opened(hostile_broker.origin)
    page.goto(f"{hostile_broker.console}queue?queue=unseen&tab=tail")
    with vibemq.sync.connect(hostile_broker.url) as mq:
        mq.create_queue("unseen")
        page.reload()
        page.get_by_text("Following", exact=True).wait_for()
        assert page.get_by_text("are not here").count() == 0
        with page.expect_event("requestfailed", lambda request: request.url.endswith("/unseen/tail")):
            page.evaluate(SEEN, "hidden")
        page.get_by_text("Paused", exact=True).wait_for()
        page.evaluate(SEEN, "visible")
        page.get_by_text("Following", exact=True).wait_for()
        page.get_by_text("Messages that came while this was paused or not seen are not here.").wait_for()
        mq.publish("unseen", "seen again")
        page.get_by_text("seen again").wait_for()
        mq.delete_queue("unseen")
