// The strip of tokens: text nodes only, so that whatever a token says stays text.
// Runs as an anywidget in a notebook and, with a plain object as its model, in an exported page.

const ROLES = ["", "accepted", "bonus", "own", "bare"];
const MARKS = { " ": "s", "\t": "b", "\n": "l" };

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

// Whitespace is marked over the text, so that copying gives the plain text.
function fill(span, text) {
  let plain = "";
  for (const letter of text) {
    if (!(letter in MARKS)) { plain += letter; continue; }
    if (plain) span.append(plain);
    plain = "";
    span.append(make("i", MARKS[letter], letter));
  }
  if (plain) span.append(plain);
}

function short(text) {
  const line = text.replaceAll("\n", "↵").replaceAll("\t", "→").replaceAll(" ", "␣");
  return line.length > 40 ? line.slice(0, 40) + "…" : line;
}

function say(value) {
  if (value === null || value === undefined) return "–";
  if (value !== 0 && Math.abs(value) < 0.001) return value.toExponential(1);
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

function render({ model, el }) {
  const key = make("ul", "sv-key");
  const strip = make("div", "sv-strip sv-live");
  const card = make("div", "sv-card");
  strip.tabIndex = 0;
  strip.dir = "ltr";
  strip.translate = false;
  strip.setAttribute("role", "application");
  strip.setAttribute("aria-roledescription", "token strip");
  card.setAttribute("aria-live", "polite");
  el.classList.add("sv-strip-view");
  el.append(key, strip, card);

  let spans = [];
  let built = null; // the tokens that the spans stand for
  let hovered = -1;
  let from = -1; // where a keyboard selection began

  function build() {
    built = model.get("tokens");
    const { text, name } = built;
    strip.replaceChildren();
    spans = text.map((piece, t) => {
      const span = make("span", "t");
      span.dataset.t = t;
      fill(span, piece);
      return span;
    });
    strip.append(...spans);
    strip.setAttribute("aria-label", name + ". Arrow keys move from token to token.");
    hovered = -1;
  }

  function paint() {
    if (model.get("tokens") !== built) build(); // tokens and paint may come in either order
    const { steps, roles, starts, key: lines, by_role: byRole } = model.get("paint");
    const first = new Set(starts);
    const marked = new Set(model.get("marked"));
    const pinned = model.get("at");
    strip.classList.toggle("by-role", byRole);
    strip.classList.toggle("dim", marked.size > 0);
    spans.forEach((span, t) => {
      span.className = [
        "t", steps[t] < 0 ? "n" : "h" + steps[t], ROLES[roles[t]],
        first.has(t) ? "first" : "", marked.has(t) ? "marked" : "", t === pinned ? "at" : "",
      ].filter(Boolean).join(" ");
    });
    key.classList.toggle("by-role", byRole);
    key.replaceChildren(...lines.map(([title, items]) => {
      const line = make("li", "", title + " ");
      for (const [name, text] of items) line.append(make("span", "t " + name, text));
      return line;
    }));
    describe();
  }

  function describe() {
    const t = hovered >= 0 ? hovered : model.get("at");
    card.replaceChildren();
    const painted = model.get("paint").roles.length;
    if (t < 0 || t >= Math.min(spans.length, painted)) {
      card.append(make("p", "hint",
        "Point at a token, click it, or press the arrow keys: its numbers stand here."));
      return;
    }
    const tokens = model.get("tokens");
    const { q, rounds, round_of: owner, roles, names } = model.get("paint");
    const facts = make("div", "facts");
    const head = make("p", "head");
    head.append(make("b", "", "“" + short(tokens.text[t]) + "”"), ` y[${t}]`);
    const table = make("dl", "");
    for (const [name, value] of [
      ["entropy", tokens.entropy[t] === null ? "not recorded" : say(tokens.entropy[t]) + " nats"],
      ["EBF", tokens.entropy[t] === null ? "–" : say(Math.exp(tokens.entropy[t]))],
      ["p (target)", say(tokens.p[t])],
      ["q (drafter)", q[t] !== null ? say(q[t])
        : [1, 3].includes(roles[t]) ? "not recorded" : "not drafted"],
      ["rank", tokens.rank[t] === null ? "–" : String(tokens.rank[t] + 1)],
    ]) {
      const pair = make("div", "");
      pair.append(make("dt", "", name), make("dd", "", value));
      table.append(pair);
    }
    facts.append(head, table);
    if (owner[t] >= 0) {
      facts.append(make("p", "", rounds[owner[t]]), make("p", "", names[roles[t]]));
    } else {
      facts.append(make("p", "", names[0]));
    }
    card.append(facts);
    if (tokens.best[t].length) {
      const list = make("ul", "best");
      list.append(make("li", "title", "the target's best, p"));
      for (const [text, p] of tokens.best[t]) {
        const line = make("li", "");
        const bar = make("span", "bar");
        bar.style.width = Math.max(1, 100 * p) + "%";
        line.append(make("span", "name", short(text)), make("span", "p", say(p)), bar);
        list.append(line);
      }
      card.append(list);
    }
  }

  function pin(t) {
    model.set("at", t);
    model.save_changes();
  }

  function brush(one, other) {
    model.set("span", one < 0 ? [] : [Math.min(one, other), Math.max(one, other)]);
    model.save_changes();
  }

  const tokenAt = (node) => {
    const element = node instanceof Element ? node : node && node.parentElement;
    const span = element && element.closest("[data-t]");
    return span && strip.contains(span) ? Number(span.dataset.t) : -1;
  };
  strip.addEventListener("pointerover", (event) => {
    const t = tokenAt(event.target);
    if (t >= 0 && t !== hovered) { hovered = t; describe(); }
  });
  strip.addEventListener("pointerleave", () => { hovered = -1; describe(); });
  strip.addEventListener("pointerup", (event) => {
    const root = strip.getRootNode();
    const chosen = root.getSelection ? root.getSelection() : document.getSelection();
    if (chosen && !chosen.isCollapsed) {
      const [a, b] = [tokenAt(chosen.anchorNode), tokenAt(chosen.focusNode)];
      if (a >= 0 && b >= 0) { brush(a, b); return; }
    }
    brush(-1);
    const t = tokenAt(event.target);
    if (t >= 0) pin(t === model.get("at") ? -1 : t);
  });
  strip.addEventListener("keydown", (event) => {
    const last = spans.length - 1;
    const at = model.get("at");
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last };
    if (event.key === "Escape") { brush(-1); pin(-1); from = -1; return; }
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const to = Math.min(last, Math.max(0, moves[event.key]));
    if (event.shiftKey) {
      if (from < 0) from = Math.max(0, at);
      brush(from, to);
    } else if (from >= 0) { from = -1; brush(-1); }
    hovered = -1;
    pin(to);
    spans[to].scrollIntoView({ block: "nearest" });
  });

  model.on("change:tokens", paint);
  model.on("change:paint", paint);
  model.on("change:marked", paint);
  model.on("change:at", paint);
  paint();
  return () => {
    model.off("change:tokens", paint);
    model.off("change:paint", paint);
    model.off("change:marked", paint);
    model.off("change:at", paint);
  };
}

export default { render };
