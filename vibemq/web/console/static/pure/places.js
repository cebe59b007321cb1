// Where the log-in page goes.

/** The page that was wanted: one of our own, with its parameters, whatever the address says; else the front page. */
export function placeAfterLogin(then) {
  return /^[a-z-]*(\?[^#]*)?$/.test(then ?? "") && !/^login/.test(then ?? "") ? `./${then ?? ""}` : "./";
}
