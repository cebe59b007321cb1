// Dialogs: `Modal` and `Form`, `ask` for what changes something, `say` for what has happened, `Menu` for a few choices.
import { html, signal, useEffect, useId, useLayoutEffect, useRef, useState } from "../vendor/ui.js";
import { newKey } from "./api.js";
import { Commands } from "./command.js";
import { Outside, Trouble, Waiting } from "./text.js";
import { keysOf } from "../pure/commands.js";
import { isTyped } from "../pure/names.js";

const LONG_MS = 1000;

/** Dialogs that are open. */
export const dialogCount = signal(0);

/** A dialog that is open while it is rendered. Escape and the cross close it; the focus goes back to where it was.
 * `isUnderWay`: its request is, which no closing would call back; until the answer has come nothing closes it. @param {any} props */
export function Modal({ title, onClose, footer = null, broad = false, children, onSubmit = undefined, isUnderWay = false }) {
  const element = useRef(null);
  const isOpen = useRef(true);
  const id = useId();
  useLayoutEffect(() => {
    const before = document.activeElement;
    const dialog = element.current;
    dialog.showModal();
    dialogCount.value += 1;
    return () => {
      isOpen.current = false;
      dialogCount.value -= 1;
      // While it is open, nothing outside of it can have the focus.
      dialog.close();
      giveFocusBack(before);
    };
  }, []);
  const close = () => !isUnderWay && onClose();
  // A browser lets a second Escape close a dialog without asking.
  const onClosed = () => {
    if (!isOpen.current) return;
    if (isUnderWay) element.current.showModal();
    else onClose();
  };
  // The second click of two is none on what has come into the place of the button: the next step, or the same once more.
  // Nor does it take the focus from there.
  const onClick = (event) => event.detail > 1 && event.target.closest("button[type=submit]") && event.preventDefault();
  const inside = html`
    <header><h2 id=${id}>${title}</h2><button type="button" class="close" aria-label="Close" disabled=${isUnderWay} onClick=${close}>×</button></header>
    <div class="inside">${children}${isUnderWay && html`<${UnderWay} />`}</div>
    ${footer && html`<footer>${footer}</footer>`}`;
  return html`<dialog ref=${element} class=${broad ? "broad" : ""} aria-labelledby=${id} onCancel=${(event) => { event.preventDefault(); close(); }} onClose=${onClosed}>
    ${onSubmit ? html`<form class="dialog" onClick=${onClick} onMouseDown=${onClick} onSubmit=${(event) => { event.preventDefault(); onSubmit(); }}>${inside}</form>` : html`<div class="dialog">${inside}</div>`}
  </dialog>`;
}

const FOCUS_MS = 10_000;

/** To what had it before. That may go with its row as soon as newer rows are there: the page has it then, so that the keyboard does not
 * begin at the top. */
function giveFocusBack(before) {
  if (before?.isConnected) before.focus();
  const main = document.getElementById("main");
  if (main === null) return;
  const watcher = new MutationObserver(() => {
    if (document.activeElement !== document.body) return;
    watcher.disconnect();
    main.focus({ preventScroll: true });
  });
  watcher.observe(main, { childList: true, subtree: true });
  setTimeout(() => watcher.disconnect(), FOCUS_MS);
}

/** Most answers are there before anybody could read it. */
function UnderWay() {
  const [isLong, setLong] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLong(true), LONG_MS);
    return () => clearTimeout(timer);
  }, []);
  return html`<p class="muted" role="status">${isLong && "It has been sent and cannot be called back. What comes of it is told here."}</p>`;
}

/** What a form sends when its button is pressed. `act(key)` does it, with the key of `request`; what it throws is `problem`.
 * Pressed again, because no answer has come, the same request has the same key, and the broker carries it out once. */
export function useSending(request, act) {
  const [keyOf] = useState(() => keysOf(newKey));
  const [problem, setProblem] = useState(null);
  const [isUnderWay, setUnderWay] = useState(false);
  // Two presses can be faster than the page.
  const isBusy = useRef(false);
  const send = async () => {
    if (isBusy.current) return;
    isBusy.current = true;
    setUnderWay(true);
    setProblem(null);
    try {
      await act(keyOf(request));
    } catch (found) {
      setProblem(found);
    } finally {
      isBusy.current = false;
      setUnderWay(false);
    }
  };
  return { send, problem, isUnderWay };
}

/** A dialog that sends one request. `act(key)` does it, with the key of `commands.request`; what it throws is shown, and the dialog stays. */
export function Form({ title, button, act, commands, onClose, isReady = true, isDanger = false, broad = false, children }) {
  const { send, problem, isUnderWay } = useSending(commands.request ?? "", act);
  const footer = html`
    <button type="button" class="button" disabled=${isUnderWay} onClick=${onClose}>Cancel</button>
    <button type="submit" class=${`button main ${isDanger ? "danger" : ""}`} disabled=${!isReady || isUnderWay}>${button}</button>`;
  return html`<${Modal} title=${title} broad=${broad} onClose=${onClose} onSubmit=${() => isReady && send()} footer=${footer} isUnderWay=${isUnderWay}>
    ${children}
    <${Commands} ...${commands} />
    ${problem && html`<${Trouble} problem=${problem} />`}
  </${Modal}>`;
}

const asked = signal(null);

/** Ask before something is changed. Answers what `act` returned, or undefined when it was not done.
 *
 * `happens`: what happens, to how many. `button`: verb and number, as "Purge 1,284 messages". `typed`: what must be typed
 * first: a name or a number. `act(key)`: what it throws is shown in the dialog, which stays; each press has the same key.
 * `instead`: a gentler way. `look(signal)`: what has to be found out first, while the dialog is open: answers more of the
 * question, or {nothing}: why there is nothing to ask. */
export function ask(question) {
  return new Promise((done) => {
    asked.value?.done(undefined);
    asked.value = { ...question, done, id: newKey() };
  });
}

export function Question() {
  const question = asked.value;
  return question && html`<${Asking} key=${question.id} question=${question} />`;
}

/** The question with what its `look` has found, and what that has failed with. */
function useLook(question) {
  const [found, setFound] = useState(question.look ? null : {});
  const [problem, setProblem] = useState(null);
  useEffect(() => {
    const leaving = new AbortController();
    const onProblem = (refused) => refused.name !== "AbortError" && setProblem(refused);
    question.look?.(leaving.signal).then(setFound, onProblem);
    return () => leaving.abort();
  }, []);
  return { isFound: found !== null, whole: { ...question, ...found }, problem };
}

function Asking({ question: begun }) {
  const [typed, setTyped] = useState("");
  const id = useId();
  const field = useRef(null);
  const { isFound, whole: question, problem: unseen } = useLook(begun);
  const wanted = question.typed === undefined ? null : String(question.typed);
  useEffect(() => field.current?.focus(), [isFound]);
  const close = (answer) => {
    if (asked.value === begun) asked.value = null;
    begun.done(answer);
  };
  const { send, problem, isUnderWay } = useSending(question.id, async (key) => close((await question.act(key)) ?? true));
  const isReady = wanted === null || isTyped(typed, wanted);
  const footer = html`
    <button type="button" class="button" disabled=${isUnderWay} onClick=${() => close(undefined)}>${question.nothing ? "Close" : "Cancel"}</button>
    ${!question.nothing && html`<button type="submit" class=${`button main ${question.isDanger ? "danger" : ""}`} disabled=${isUnderWay || !isReady || !isFound}>${question.button}</button>`}`;
  return html`<${Modal} title=${question.title} onClose=${() => close(undefined)} footer=${footer} onSubmit=${() => isReady && isFound && !question.nothing && send()} isUnderWay=${isUnderWay}>
    <div>${question.happens}</div>
    ${!isFound && !unseen && html`<${Waiting} what="Looking what would happen" />`}
    ${question.nothing && html`<p role="status"><strong>${question.nothing}</strong></p>`}
    ${question.reversible && html`<p class="muted">${question.reversible}</p>`}
    ${question.instead}
    ${wanted !== null && html`<div class="field"><label for=${id}>Type <strong><${Outside} text=${wanted} mono /></strong> to confirm</label>
      <input id=${id} ref=${field} value=${typed} autocomplete="off" spellcheck=${false} autofocus onInput=${(event) => setTyped(event.target.value)} /></div>`}
    ${question.commands && html`<${Commands} ...${question.commands} />`}
    ${(problem ?? unseen) && html`<${Trouble} problem=${problem ?? unseen} />`}
  </${Modal}>`;
}

const said = signal([]);
const SHOWN_MS = 8000;

/** Tell what has happened, for a while; screen readers hear it. */
export function say(text) {
  const one = { text, id: Math.random() };
  said.value = [...said.value.slice(-3), one];
  setTimeout(() => unsay(one.id), SHOWN_MS);
}

const unsay = (id) => {
  said.value = said.value.filter((one) => one.id !== id);
};

export const Notices = () => html`<div class="notices" role="status">${said.value.map(({ id, text }) =>
  html`<div class="notice" key=${id}><span>${text}</span><button type="button" aria-label="Dismiss" onClick=${() => unsay(id)}>×</button></div>`)}</div>`;

/** A button that opens a few choices below itself. Escape and a click elsewhere close it. */
export function Menu({ label, title, children, tool }) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef(null);
  const id = useId();
  useEffect(() => {
    if (!isOpen) return undefined;
    const outside = (event) => !box.current.contains(event.target) && setOpen(false);
    const close = (event) => {
      if (event.key !== "Escape") return;
      setOpen(false);
      box.current.querySelector("button").focus();
    };
    document.addEventListener("pointerdown", outside);
    document.addEventListener("focusin", outside);
    document.addEventListener("keydown", close);
    return () => {
      document.removeEventListener("pointerdown", outside);
      document.removeEventListener("focusin", outside);
      document.removeEventListener("keydown", close);
    };
  }, [isOpen]);
  return html`<span class="menu" ref=${box}>
    <button type="button" class=${tool ? "tool" : "button slim"} aria-expanded=${String(isOpen)} aria-controls=${id} title=${title} onClick=${() => setOpen(!isOpen)}>${label}</button>
    <div class="menu-inside" id=${id} hidden=${!isOpen}>${isOpen && children}</div>
  </span>`;
}
