// Runs before the page is painted, so that a chosen theme does not flash. Without a choice, the system's theme holds.
(() => {
  try {
    const chosen = localStorage.getItem("pairre-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    /* storage is turned off: the theme of the system */
  }
})();
