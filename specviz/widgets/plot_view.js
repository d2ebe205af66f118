// A plotly picture whose code reaches the page once, however many pictures there are.
// FigureWidget ships 5 MB of code with each; anywidget gives code two seconds to start, and on a
// busy machine several of them do not: the pictures stay empty. This starts at once and waits.

const HERE = "specvizPlotly";

function run(code) {
  return new Promise((resolve, reject) => {
    const before = globalThis.Plotly;
    const script = document.createElement("script");
    script.src = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    script.onload = () => {
      const plotly = globalThis.Plotly;
      if (before) globalThis.Plotly = before;
      URL.revokeObjectURL(script.src);
      plotly ? resolve(plotly) : reject(new Error("plotly's code set nothing"));
    };
    script.onerror = () => reject(new Error("plotly's code was not allowed to run"));
    document.head.append(script);
  });
}

function ask(model) {
  return new Promise((resolve) => {
    const heard = (message, buffers) => {
      if (message.kind !== "code") return;
      model.off("msg:custom", heard);
      resolve(new TextDecoder().decode(buffers[0]));
    };
    model.on("msg:custom", heard);
    model.send({ kind: "code" });
  });
}

function plotly(model) {
  globalThis[HERE] ??= Promise.resolve(model.get("code") || ask(model)).then(run);
  return globalThis[HERE];
}

function initialize({ model }) {
  if (model.get("code")) plotly(model).catch(() => {});
}

function render({ model, el }) {
  const box = document.createElement("div");
  box.className = "sv-plot";
  box.style.width = "100%";
  el.style.width = "100%";
  el.append(box);
  let stale = false;
  let busy = false;
  let wired = false;
  let gone = false;
  let inked = false;

  function wire() {
    box.on("plotly_click", ({ points: [p] }) => {
      const { curveNumber: trace, pointIndex, pointNumber, x, y } = p;
      model.set("clicked", { trace, point: pointIndex ?? pointNumber, x, y, at: Date.now() });
      model.save_changes();
    });
    const brush = (event) => {
      if (busy) return; // drawing anew lifts the box; the reader did not
      const points = event && event.points ? event.points : [];
      model.set("brushed", points.map((p) => [p.curveNumber, p.pointIndex]));
      model.save_changes();
    };
    box.on("plotly_selected", brush);
    box.on("plotly_deselect", () => brush(null));
  }

  // While one drawing runs, later ones wait, and only the last of them is drawn.
  async function draw() {
    stale = true;
    if (busy) return;
    busy = true;
    try {
      const library = await plotly(model);
      while (stale && !gone) {
        stale = false;
        const { data, layout } = JSON.parse(model.get("figure"));
        box.style.minHeight = (layout.height || 420) + "px";
        // Ink of the page, so that it reads on light and on dark paper.
        const ink = getComputedStyle(el).color; // "" while not on the page yet
        inked = Boolean(ink);
        const font = inked ? { ...layout.font, color: ink } : layout.font;
        // Few buttons, so that they leave the title free.
        const buttons = ["toImage", "resetScale2d"];
        if (layout.dragmode === "select") buttons.push("pan2d", "select2d");
        await library.react(box, data, { ...layout, font, autosize: true },
          { displaylogo: false, responsive: true, modeBarButtons: [buttons] });
        if (!wired) { wired = true; wire(); }
      }
    } catch (error) {
      box.setAttribute("role", "alert");
      box.textContent = "The picture could not be drawn here (" + error.message
        + "): the widget's .figure shows it.";
    } finally {
      busy = false;
    }
  }

  let width = 0;
  const resized = new ResizeObserver(() => {
    // A new height comes from a picture that was drawn just now.
    if (!wired || !box.clientWidth || (inked && box.clientWidth === width)) return;
    width = box.clientWidth;
    if (inked) plotly(model).then((library) => library.Plots.resize(box));
    else draw();
  });
  resized.observe(el);
  model.on("change:figure", draw);
  draw();
  return () => {
    gone = true;
    resized.disconnect();
    model.off("change:figure", draw);
    if (wired) plotly(model).then((library) => library.purge(box));
  };
}

export default { initialize, render };
