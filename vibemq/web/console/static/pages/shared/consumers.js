// Consumers in tables: what each holds, on the pages of its queue and of its connection.
import { html } from "../../vendor/ui.js";
import { count } from "../../pure/format.js";
import { Ago, Duration, Outside } from "../../parts/text.js";

const heldSince = ({ in_flight, oldest_held_ms, ack_timeout_ms }) =>
  in_flight && !ack_timeout_ms
    ? html`<span class="muted" title="Its subscription has no ack timeout: it may hold messages for ever, and the broker notes no instant of a hand-out that does not end">no ack timeout</span>`
    : html`<${Duration} ms=${oldest_held_ms} />`;

export const HELD = [
  { key: "group", label: "Group", cell: ({ group }) => html`<${Outside} text=${group} mono=${true} />` },
  { key: "prefetch", label: "Prefetch used", isNum: true, title: "Messages that it holds, of those that it may hold", cell: ({ in_flight, prefetch }) => html`${count(in_flight)} / ${prefetch ? count(prefetch) : "∞"}` },
  { key: "oldest", label: "Oldest held", isNum: true, cell: heldSince },
  { key: "last", label: "Last ack", isNum: true, cell: ({ last_ack_at }) => html`<${Ago} at=${last_ack_at} />` },
];
