// Icons as elements, in the colour of the text beside them. None says anything that the text does not.
import { html } from "../vendor/ui.js";

const PATHS = {
  overview: "M3 13a9 9 0 0 1 18 0M12 13l4-4M3 19h18",
  queues: "M4 6h16M4 12h16M4 18h10",
  dead: "M12 3l9 16H3zM12 9v5M12 16.5v.5",
  jobs: "M4 12a8 8 0 0 1 14-5l2 2M20 4v5h-5M20 12a8 8 0 0 1-14 5l-2-2M4 20v-5h5",
  connections: "M9 7V3M15 7V3M6 7h12v4a6 6 0 0 1-12 0zM12 17v4",
  cursors: "M5 4v16M5 12h10M11 8l4 4-4 4M19 4v16",
  broker: "M4 4h16v7H4zM4 13h16v7H4zM8 7.5h.5M8 16.5h.5",
  access: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21a8 8 0 0 1 16 0",
  audit: "M6 3h9l4 4v14H6zM9 11h7M9 15h7M9 7h3",
  api: "M8 6l-6 6 6 6M16 6l6 6-6 6",
  menu: "M4 6h16M4 12h16M4 18h16",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  moon: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5z",
  auto: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 3v18M12 8h6.5M12 13h7.5M12 17h5",
  help: "M9 9a3 3 0 1 1 4 2.8c-.7.3-1 .8-1 1.7M12 17v.5M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
};

export const Icon = ({ name }) => html`<svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
