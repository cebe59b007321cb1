// Before anything is painted: the chosen theme, so that no page flashes in the other one.
(() => {
  try {
    const theme = localStorage.getItem("vibemq-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be switched off; the system's theme is used then.
  }
})();
