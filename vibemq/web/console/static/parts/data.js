// What a page shows: fetched at once, then again while the page is live and seen.
import { signal, useCallback, useEffect, useRef, useState } from "../vendor/ui.js";
import { BASE, get, isFilling, leaveForLogin, lostSince, newKey, problemOf, unreached, urlOf } from "./api.js";
import { query as queryText } from "../pure/commands.js";
import { EventReader } from "../pure/sse.js";
import { chooseTopics } from "../pure/topics.js";

export const EVERY_MS = 5000;
/** What a page shows is not there any more, or not for this user. */
const GONE = new Set([403, 404]);

/** Whether figures move. Switched off, every page stays as it is. */
export const live = signal(true);

/** Whether somebody sees this tab, as far as the browser knows. */
export const seen = signal(document.visibilityState === "visible");
document.addEventListener("visibilitychange", () => {
  seen.value = document.visibilityState === "visible";
});

/** Calls `act` whenever figures move again; the answer ends that. What the stream has told meanwhile it does not tell again. */
export function onGoingOn(act) {
  let wasLive = live.value;
  return live.subscribe((isLive) => {
    if (isLive && !wasLive) act();
    wasLive = isLive;
  });
}

const NOTHING_YET = { wanted: null, data: undefined, problem: null, at: 0 };

/** `path` null: nothing yet. Answers {data, problem, at, isOld, refresh}: data stays while newer ones are fetched, and, where they are
 * gone, while somebody fills in a form, which may be drawn with them;
 * `isOld`: they belong to the address before. `topic`: of the event stream; `merge(frame, data)` puts a frame into the data, or answers
 * undefined where all has to be asked for.
 * `every` 0: once. `onAnswer`: given each response. @type {UseData} */
export function useData(path, { query = {}, every = EVERY_MS, topic, merge = (frame) => frame, onAnswer } = {}) {
  const wanted = path === null ? null : path + queryText(query);
  const [state, setState] = useState(NOTHING_YET);
  /** What is shown, or will be with the next drawing. */
  const last = useRef(NOTHING_YET);
  const show = (next) => {
    last.current = next;
    setState(next);
  };
  const latest = useRef(wanted);
  latest.current = wanted;
  const asked = useRef(0);
  const answered = useRef(0);
  /** Without an answer there is nothing that a frame of the stream could be put into. */
  const isAnswered = useRef(false);
  const fetchNow = useCallback(
    async (options = {}) => {
      if (wanted === null) return;
      const number = ++asked.current;
      // An answer that a later request has overtaken tells how it was, not how it is.
      const counts = () => latest.current === wanted && number > answered.current;
      try {
        const data = await get(path, query, { ...options, onAnswer });
        if (!counts()) return;
        answered.current = number;
        isAnswered.current = true;
        show({ wanted, data, problem: null, at: Date.now() });
      } catch (problem) {
        if (problem.name === "AbortError" || !counts()) return;
        answered.current = number;
        isAnswered.current = false;
        const before = last.current;
        const isKept = before.wanted === wanted && (!GONE.has(problem.status) || isFilling());
        show({ ...before, problem, data: isKept ? before.data : undefined, wanted });
      }
    },
    [wanted],
  );
  useEffect(() => {
    const leaving = new AbortController();
    isAnswered.current = false;
    fetchNow({ signal: leaving.signal });
    if (!every) return () => leaving.abort();
    let isUnderWay = false;
    const tick = async () => {
      if (isUnderWay || !live.value || document.visibilityState !== "visible" || (isAnswered.current && carried.has(topic))) return;
      isUnderWay = true;
      await fetchNow({ signal: leaving.signal });
      isUnderWay = false;
    };
    // Pages that were opened together do not ask together.
    const timer = setInterval(tick, every * (0.9 + Math.random() * 0.2));
    const onSeen = () => document.visibilityState === "visible" && tick();
    document.addEventListener("visibilitychange", onSeen);
    const leavePause = onGoingOn(() => fetchNow({ signal: leaving.signal }));
    const leaveTopic = topic
      ? onTopic(topic, ({ data, error }) => {
          if (!live.value || latest.current !== wanted) return;
          if (error) return void fetchNow();
          // Frames bring what moves; the answer to the request, which comes first, has all the rest.
          const before = last.current;
          if (before.wanted !== wanted || before.data === undefined) return;
          const merged = merge(data, before.data);
          if (merged === undefined) return void fetchNow();
          show({ wanted, data: merged, problem: null, at: Date.now() });
        })
      : () => {};
    return () => {
      leaving.abort();
      clearInterval(timer);
      document.removeEventListener("visibilitychange", onSeen);
      leavePause();
      leaveTopic();
    };
  }, [wanted, every, topic]);
  const isOld = state.wanted !== wanted;
  return { data: state.data, problem: state.problem, at: state.at, isOld, refresh: () => fetchNow() };
}

/** Rows in the order in which they were first shown, so that none jumps under the pointer; new ones come last. `reset`:
 * when it changes, the order is that of the rows. */
export function useSteady(rows, keyOf, reset) {
  const kept = useRef({ reset: undefined, order: [] });
  if (kept.current.reset !== reset) kept.current = { reset, order: [] };
  const byKey = new Map((rows ?? []).map((row) => [keyOf(row), row]));
  const order = kept.current.order.filter((key) => byKey.has(key));
  const known = new Set(order);
  for (const key of byKey.keys()) if (!known.has(key)) order.push(key);
  kept.current.order = order;
  return order.map((key) => byKey.get(key));
}

// Streams of events over fetch, so that the cookie and the policy of the page hold for them; and the one stream of the
// browser that all its tabs share.

/** The broker writes something every 15 seconds: what is silent for so long has gone without a word. */
const SILENT_MS = 40_000;

/** Calls `onEvent({event, data})` until the stream ends or `signal` says so. Throws a Problem when it cannot be had or is cut off. */
export async function readEvents(path, query, { signal: leaving, onEvent, onOpen }) {
  const silence = new AbortController();
  let timer;
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(), SILENT_MS);
  };
  // Whether the broker is lost the next request says: a proxy may refuse or end streams alone.
  const onLoss = (error) => {
    throw leaving.aborted ? error : unreached();
  };
  wait();
  try {
    const signal = AbortSignal.any([leaving, silence.signal]);
    /** @type {any} */
    const response = await fetch(urlOf(path, query), { headers: { accept: "text/event-stream" }, signal, credentials: "same-origin" }).catch(onLoss);
    if (!response.ok) {
      if (response.status === 401) leaveForLogin();
      throw problemOf(response, await response.text().catch(() => ""));
    }
    lostSince.value = 0;
    onOpen?.();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = new EventReader();
    for (;;) {
      wait();
      const { done, value } = await reader.read().catch(onLoss);
      if (done) return;
      for (const event of events.read(value)) onEvent(event);
    }
  } finally {
    clearTimeout(timer);
  }
}

/** Topics of which frames arrive; what shows them need not poll. */
let carried = new Set();
/** Whether they have all that this tab shows. */
export const streaming = signal(false);

const AGAIN_MS = 5000;
const listeners = new Map();
const me = newKey();
const channel = new BroadcastChannel(`vibemq-events ${BASE.pathname}`);
/** Of the leader: which topics each tab wants. */
const wanted = new Map();
/** Of the leader: tabs of which it hears when they are gone. */
const watched = new Set();
let isLeader = false;
let open = { topics: "", stop: () => {} };

/** `onFrame` is called with each frame of a topic, {data} or {error}; the answer ends that. */
export function onTopic(topic, onFrame) {
  if (!listeners.has(topic)) listeners.set(topic, new Set());
  listeners.get(topic).add(onFrame);
  announce();
  return () => {
    const some = listeners.get(topic);
    some?.delete(onFrame);
    if (some?.size === 0) listeners.delete(topic);
    announce();
  };
}

/** A lock that a tab has as long as it lives: whoever gets it knows that the tab is gone, also without a word. */
const lifeOf = (tab) => `vibemq-tab ${tab}`;
/** Only secure pages have locks, and a leader. */
let isAlive = false;

/** Tell the leader what this tab wants: nothing while nobody sees it. */
function announce() {
  if (!isAlive) return;
  const topics = document.visibilityState === "visible" ? [...listeners.keys()].sort() : [];
  tell({ tab: me, topics });
}

/** To all tabs, this one included. */
function tell(message) {
  channel.postMessage(message);
  hear(message);
}

channel.onmessage = ({ data }) => hear(data);

function hear({ tab, topics, frame, streamed, leader }) {
  if (frame) {
    // Figures that move are an answer of the broker.
    lostSince.value = 0;
    for (const onFrame of listeners.get(frame.topic) ?? []) onFrame(frame);
  }
  if (streamed) {
    carried = new Set(streamed);
    streaming.value = carried.size > 0 && [...listeners.keys()].every((topic) => carried.has(topic));
  }
  if (leader) announce();
  if (topics && isLeader) {
    if (topics.length) want(tab, topics);
    else wanted.delete(tab);
    follow();
  }
}

/** Of the leader: what a tab wants counts until it wants something else, or is gone. */
function want(tab, topics) {
  const isNew = !watched.has(tab);
  wanted.set(tab, topics);
  if (!isNew) return;
  watched.add(tab);
  navigator.locks.request(lifeOf(tab), () => {
    watched.delete(tab);
    wanted.delete(tab);
    follow();
  });
}

/** Of the leader: one stream with what all tabs want together; none when they want nothing. */
function follow() {
  const topics = chooseTopics([...wanted.values()]);
  const text = topics.join("\n");
  if (text === open.topics) {
    if (text && carried.size) tell({ streamed: topics });
    return;
  }
  open.stop();
  if (!text) {
    open = { topics: "", stop: () => {} };
    tell({ streamed: [] });
    return;
  }
  const leaving = new AbortController();
  open = { topics: text, stop: () => leaving.abort() };
  const onEvent = ({ event, data }) => {
    if (event === "bye") return;
    tell({ frame: JSON.parse(data) });
  };
  readEvents("events", { topic: topics }, { signal: leaving.signal, onEvent, onOpen: () => tell({ streamed: topics }) })
    .catch(() => {})
    .then(() => {
      if (leaving.signal.aborted) return;
      tell({ streamed: [] });
      setTimeout(() => {
        if (open.topics !== text) return;
        open.topics = "";
        follow();
      }, AGAIN_MS * (0.5 + Math.random()));
    });
}

document.addEventListener("visibilitychange", announce);
addEventListener("pagehide", () => tell({ tab: me, topics: [] }));
addEventListener("pageshow", announce);

const forEver = new Promise(() => {});
navigator.locks?.request(lifeOf(me), () => {
  isAlive = true;
  announce();
  return forEver;
});
// Whoever has the lock is the leader, until its tab is closed. Only secure pages have locks; the others poll.
navigator.locks?.request(`vibemq-events ${BASE.pathname}`, async () => {
  isLeader = true;
  tell({ leader: me });
  await forEver;
});
