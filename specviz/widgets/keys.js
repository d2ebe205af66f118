// In command mode a notebook takes arrows, letters and Enter for itself, even where a slider has
// the focus. It leaves alone what carries this attribute, and looks at the focused element first.
if (!globalThis.specvizKeys) {
  globalThis.specvizKeys = true;
  document.addEventListener("focusin", ({ target }) => {
    if (target.closest?.(".specviz-widget")) {
      target.setAttribute("data-lm-suppress-shortcuts", "true");
    }
  });
}

