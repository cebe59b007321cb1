// What a page shows: fetched at once, then again while the page is live and seen.
import { signal, useCallback, useEffect, useRef, useState } from "../vendor/ui.js";
import { get } from "./api.js";
import { query as queryText } from "../pure/commands.js";
import { onTopic, streaming } from "./events.js";

export const EVERY_MS = 5000;

/** Whether figures move. Switched off, every page stays as it is. */
export const live = signal(true);

/** `path` null: nothing yet. Answers {data, problem, at, isOld, refresh}: data stays while newer ones are fetched;
 * `isOld`: they belong to the address before. `topic`: of the event stream; `merge(frame, data)` puts a frame into the data.
 * `every` 0: once. `onAnswer`: given each response. */
export function useData(path, { query = {}, every = EVERY_MS, topic = null, merge = (frame) => frame, onAnswer } = {}) {
  const wanted = path === null ? null : path + queryText(query);
  const [state, setState] = useState({ wanted: null, data: undefined, problem: null, at: 0 });
  const latest = useRef(wanted);
  latest.current = wanted;
  const fetchNow = useCallback(
    async (options = {}) => {
      if (wanted === null) return;
      try {
        const data = await get(path, query, { ...options, onAnswer });
        if (latest.current === wanted) setState({ wanted, data, problem: null, at: Date.now() });
      } catch (problem) {
        if (problem.name === "AbortError" || latest.current !== wanted) return;
        setState((before) => ({ ...before, problem, data: before.wanted === wanted ? before.data : undefined, wanted }));
      }
    },
    [wanted],
  );
  useEffect(() => {
    const leaving = new AbortController();
    fetchNow({ signal: leaving.signal });
    if (!every) return () => leaving.abort();
    let isUnderWay = false;
    const tick = async () => {
      if (isUnderWay || !live.value || document.visibilityState !== "visible" || (topic && streaming.value)) return;
      isUnderWay = true;
      await fetchNow({ signal: leaving.signal });
      isUnderWay = false;
    };
    // Pages that were opened together do not ask together.
    const timer = setInterval(tick, every * (0.9 + Math.random() * 0.2));
    const onSeen = () => document.visibilityState === "visible" && tick();
    document.addEventListener("visibilitychange", onSeen);
    const leaveTopic = topic
      ? onTopic(topic, (frame) => {
          if (!live.value || latest.current !== wanted) return;
          // Frames bring what moves; the answer to the request, which comes first, has all the rest.
          setState((before) => (before.data === undefined ? before : { wanted, data: merge(frame, before.data), problem: null, at: Date.now() }));
        })
      : () => {};
    return () => {
      leaving.abort();
      clearInterval(timer);
      document.removeEventListener("visibilitychange", onSeen);
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
