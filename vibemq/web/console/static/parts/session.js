// Who is here, and what they may do. The API enforces it; the pages only leave out what would be refused.
import { signal } from "../vendor/ui.js";
import { matches } from "../pure/patterns.js";
import { get, leaveForLogin, remove } from "./api.js";

/** The answer of GET /session; null until it has come. */
export const session = signal(null);
export const sessionProblem = signal(null);

export async function loadSession() {
  try {
    const found = await get("session");
    if (found.auth_enabled && !found.authenticated) leaveForLogin();
    else session.value = found;
    sessionProblem.value = null;
  } catch (problem) {
    sessionProblem.value = problem;
  }
}

export async function logOut({ everywhere = false } = {}) {
  await remove("session", { everywhere });
  // What this user was shown is not for the next one in the same tab.
  sessionStorage.clear();
  location.assign("./login");
}

export const isSuperuser = () => session.value !== null && (!session.value.auth_enabled || session.value.superuser);

/** Whether an operation that concerns no single queue may be done. */
export function mayDo(operation) {
  const found = session.value;
  if (found === null) return false;
  return isSuperuser() || found.may?.[operation] === true;
}

/** Whether an action is allowed on a queue (or, with `kind`, on a group or a transaction). */
export function may(action, name, kind = "queue") {
  const found = session.value;
  if (found === null) return false;
  const allow = (rules) => rules.some((rule) => rule.kind === kind && matches(rule.pattern, name) && (rule.actions.includes(action) || rule.actions.includes("*")));
  return (isSuperuser() || allow(found.permissions)) && (!found.narrowed_to || allow(found.narrowed_to));
}

/** Whether an action is allowed on any queue at all. */
export const mayAnywhere = (action) => isSuperuser() || (session.value?.permissions ?? []).some(({ kind, actions }) => kind === "queue" && (actions.includes(action) || actions.includes("*")));
