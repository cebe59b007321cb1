// Permissions as the broker writes them: one of queues, groups or transactions, and actions.
import { html } from "../../vendor/ui.js";
import { Name } from "../../parts/text.js";

export const ACTIONS = {
  queues: ["publish", "subscribe", "create", "delete", "purge", "inspect", "list", "manage"],
  groups: ["manage"],
  transactions: ["transact"],
};
export const MEANINGS = {
  publish: "publish messages",
  subscribe: "consume, read by ranges, create durable groups",
  create: "create queues, change their options",
  delete: "delete queues",
  purge: "remove messages and dead letters",
  inspect: "read options, figures and dead letters",
  list: "see names in lists",
  manage: "delete, move and limit groups of others",
  transact: "stage and commit as the application",
};
export const KINDS = [["queues", "Queues"], ["groups", "Groups, as QUEUE/GROUP"], ["transactions", "Transactions of applications"]];

/** [kind, pattern] of a rule: {queues: "orders.*", actions} or {kind: "queue", pattern, actions}. */
export function resourceOf(rule) {
  if (rule.pattern !== undefined) return [`${rule.kind ?? "queue"}s`, rule.pattern];
  return Object.entries(rule).find(([name]) => name in ACTIONS) ?? ["queues", "*"];
}

/** As the command line writes it: a queue by itself, others with their kind in front. */
export const resourceText = (kind, pattern) => (kind === "queues" ? pattern : `${kind}:${pattern}`);

/** A rule for `token create --allow`. */
export function allowText(rule) {
  const [kind, pattern] = resourceOf(rule);
  return `${resourceText(kind, pattern)}=${rule.actions.join(",")}`;
}

export const actionsText = (actions) => (actions.includes("*") ? "everything" : actions.join(", "));

export function Rule({ rule }) {
  const [kind, pattern] = resourceOf(rule);
  return html`<span><b>${actionsText(rule.actions)}</b> on ${kind === "queues" ? "" : `${kind} `}<${Name} name=${pattern} /></span>`;
}

export function Rules({ rules, none = "Nothing." }) {
  if (!rules?.length) return html`<p class="muted">${none}</p>`;
  return html`<ul class="rules">${rules.map((rule) => html`<li><${Rule} rule=${rule} /></li>`)}</ul>`;
}
