// The rate of a job: a slider that counts at once while the job runs, and a number beside it.
import { html, useEffect, useId, useRef, useState } from "../../vendor/ui.js";
import { DraftInput } from "../../parts/filters.js";
import { count } from "../../pure/format.js";
import { rateOfSlider, SLIDER_MAX, sliderOfRate } from "../../pure/job_figures.js";

const SETTLE_MS = 250;

/** `rate`: letters in a second, null for no limit. `onChange(rate)` comes a moment after the last movement;
 * where it answers false, the rate stays as it was. */
export function RateSlider({ rate, onChange, label = "Letters per second, at most", atOnce = false }) {
  const id = useId();
  const [shown, setShown] = useState(rate || null);
  const timer = useRef(0);
  const isMoving = useRef(false);
  const latest = useRef(rate);
  latest.current = rate;
  useEffect(() => {
    if (!isMoving.current) setShown(rate || null);
  }, [rate]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const move = (next) => {
    setShown(next);
    isMoving.current = true;
    clearTimeout(timer.current);
    const send = async () => {
      if ((await onChange(next)) === false) setShown(latest.current || null);
      isMoving.current = false;
    };
    if (atOnce) send();
    else timer.current = setTimeout(send, SETTLE_MS);
  };
  const typed = (text) => {
    if (text === "") move(null);
    else if (/^\d{1,9}$/.test(text) && Number(text) > 0) move(Number(text));
  };
  const words = shown ? `${count(shown)} per second` : "as fast as the broker can";
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <div class="rate-slider">
      <input id=${id} type="range" min="0" max=${SLIDER_MAX} step="1" value=${sliderOfRate(shown)} aria-valuetext=${words} onInput=${(event) => move(rateOfSlider(Number(event.target.value)))} />
      <${DraftInput} type="text" inputmode="numeric" size="6" aria-label=${`${label}, as a number; empty: no limit`} placeholder="no limit" value=${shown ?? ""} finish=${typed} />
      <output for=${id} class="small">${words}</output>
    </div>
  </div>`;
}
