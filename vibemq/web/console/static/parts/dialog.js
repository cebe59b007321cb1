// Dialogs: `Modal` for forms, `ask` for what changes something, `say` for what has happened, `Menu` for a few choices.
import { html, signal, useEffect, useId, useLayoutEffect, useRef, useState } from "../vendor/ui.js";
import { Commands } from "./command.js";
import { Outside, Trouble } from "./text.js";
import { isTyped } from "../pure/names.js";

/** A dialog that is open while it is rendered. Escape and the cross close it; the focus goes back to where it was. */
export function Modal({ title, onClose, footer, broad, children, onSubmit }) {
  const element = useRef(null);
  const id = useId();
  useLayoutEffect(() => {
    const before = document.activeElement;
    const dialog = element.current;
    dialog.showModal();
    return () => {
      // While it is open, nothing outside of it can have the focus.
      dialog.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  const inside = html`
    <header><h2 id=${id}>${title}</h2><button type="button" class="close" aria-label="Close" onClick=${onClose}>×</button></header>
    <div class="inside">${children}</div>
    ${footer && html`<footer>${footer}</footer>`}`;
  return html`<dialog ref=${element} class=${broad ? "broad" : ""} aria-labelledby=${id} onCancel=${(event) => { event.preventDefault(); onClose(); }}>
    ${onSubmit ? html`<form class="dialog" onSubmit=${(event) => { event.preventDefault(); onSubmit(); }}>${inside}</form>` : html`<div class="dialog">${inside}</div>`}
  </dialog>`;
}

const asked = signal(null);

/** Ask before something is changed. Answers what `act` returned, or undefined when it was not done.
 *
 * `happens`: what happens, to how many. `button`: verb and number, as "Purge 1,284 messages". `typed`: what must be typed
 * first: a name or a number. `act`: what it throws is shown in the dialog, which stays. `instead`: a gentler way. */
export function ask(question) {
  return new Promise((done) => {
    asked.value = { ...question, done };
  });
}

export function Question() {
  const question = asked.value;
  return question && html`<${Asking} key=${question.title} question=${question} />`;
}

function Asking({ question }) {
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState(null);
  const [isUnderWay, setUnderWay] = useState(false);
  const id = useId();
  const wanted = question.typed === undefined ? null : String(question.typed);
  const close = (answer) => {
    asked.value = null;
    question.done(answer);
  };
  const act = async () => {
    if (isUnderWay || (wanted !== null && !isTyped(typed, wanted))) return;
    setUnderWay(true);
    setProblem(null);
    try {
      close((await question.act()) ?? true);
    } catch (found) {
      setProblem(found);
      setUnderWay(false);
    }
  };
  const footer = html`
    <button type="button" class="button" onClick=${() => close(undefined)}>Cancel</button>
    <button type="submit" class=${`button main ${question.isDanger ? "danger" : ""}`} disabled=${isUnderWay || (wanted !== null && !isTyped(typed, wanted))}>${question.button}</button>`;
  return html`<${Modal} title=${question.title} onClose=${() => close(undefined)} footer=${footer} onSubmit=${act}>
    <div>${question.happens}</div>
    ${question.reversible && html`<p class="muted">${question.reversible}</p>`}
    ${question.instead}
    ${wanted !== null && html`<div class="field"><label for=${id}>Type <strong><${Outside} text=${wanted} mono=${true} /></strong> to confirm</label>
      <input id=${id} value=${typed} autocomplete="off" spellcheck=${false} autofocus onInput=${(event) => setTyped(event.target.value)} /></div>`}
    ${question.commands && html`<${Commands} ...${question.commands} />`}
    ${problem && html`<${Trouble} problem=${problem} />`}
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
