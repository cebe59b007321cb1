// Log in, and go on to where one wanted to be. It has no frame: nothing is known yet.
import { html, useEffect, useState } from "../vendor/ui.js";
import { placeAfterLogin } from "../pure/names.js";
import { get, post } from "../parts/api.js";
import { params } from "../parts/address.js";
import { Field, Segments } from "../parts/filters.js";
import { Outside, Trouble, draw } from "../parts/text.js";

const AGAIN_MS = 2000;

function Login() {
  const [kind, setKind] = useState("password");
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  const [problem, setProblem] = useState(null);
  const [isUnderWay, setUnderWay] = useState(false);
  const [broker, setBroker] = useState(null);
  const place = placeAfterLogin(params.value.then);
  useEffect(() => {
    const code = new URLSearchParams(location.hash.slice(1)).get("code");
    // The code is for one use; it must not stay in the address or the history.
    history.replaceState(null, "", location.pathname + location.search);
    if (code) enter({ code });
    else look();
    // One may have logged in in another tab, whose session this one has as well.
    addEventListener("focus", look);
    return () => removeEventListener("focus", look);
  }, []);
  const look = async () => {
    try {
      const found = await get("session", {}, { atLogin: true });
      if (found.authenticated || !found.auth_enabled) location.replace(place);
      setBroker(found);
    } catch (found) {
      if (found.status !== 401) setProblem(found);
      if (found.isPassing) setTimeout(look, AGAIN_MS);
    }
  };
  const enter = async (body) => {
    setUnderWay(true);
    setProblem(null);
    try {
      await post("session", body, { atLogin: true, key: null, changesNothing: true });
      location.replace(place);
    } catch (found) {
      setProblem(found);
      setSecret("");
      setUnderWay(false);
    }
  };
  const submit = (event) => {
    event.preventDefault();
    enter(kind === "password" ? { user, password: secret } : { token: secret });
  };
  return html`<main class="login"><div class="card">
    <div class="brand"><img src=${new URL("../icon.svg", import.meta.url).href} alt="" /><span>${broker?.broker_name ? html`<${Outside} text=${broker.broker_name} isName />` : "VibeMQ"}</span></div>
    <h1>Log in</h1>
    <p class="muted">With a user of this broker.</p>
    <form class="form" onSubmit=${submit}>
      <${Segments} label="How to log in" value=${kind} options=${[["password", "Password"], ["token", "Access token"]]} onChange=${(value) => { setKind(value); setSecret(""); }} />
      ${kind === "password" && html`<${Field} label="User">${(id) => html`<input id=${id} name="user" autofocus value=${user} autocomplete="username" autocapitalize="none" spellcheck=${false} required onInput=${(event) => setUser(event.target.value)} />`}</${Field}>`}
      <${Field} label=${kind === "password" ? "Password" : "Access token"}>${(id) => html`<input id=${id} name="secret" type="password" value=${secret} autocomplete="current-password" required onInput=${(event) => setSecret(event.target.value)} />`}</${Field}>
      <button type="submit" class="button main" disabled=${isUnderWay}>${isUnderWay ? "Logging in…" : "Log in"}</button>
      ${problem && html`<${Trouble} problem=${problem} />`}
    </form>
    ${params.value.then && html`<p class="small muted">Then this goes on to the page that you wanted.</p>`}
  </div></main>`;
}

draw(html`<${Login} />`);
