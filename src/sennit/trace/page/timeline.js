// The timeline: what it shows (a window of time, a chosen task), and how people move it.

function timeline(spans) {
  const canvas = at("timeline"), overview = at("overview"), details = at("details");
  const whole = { from: 0, to: Math.max(spans.last, 1e-12) };
  const least = Math.max(whole.to * 1e-7, 1e-9);
  let shown = { ...whole }, chosen = -1, hovered = -1, dependents = null, waiting = false;
  const painter = paint(canvas, spans), map = paintOverview(overview, spans, whole);

  function draw() {
    waiting = false;
    const focus = hovered >= 0 ? hovered : chosen;
    if (focus >= 0) dependents ??= dependentsOf(spans);
    painter.draw(shown, focus, dependents);
    map.draw(shown);
    at("window").textContent = `${time(shown.from)} – ${time(shown.to)}`;
    tell(focus);
  }

  function later() {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  }

  function show(from, to) {
    const length = Math.min(whole.to, Math.max(least, to - from));
    from = Math.min(Math.max(whole.from, from), whole.to - length);
    shown = { from, to: from + length };
    later();
  }

  const length = () => shown.to - shown.from;
  const zoom = (by, around = (shown.from + shown.to) / 2) =>
    show(around - (around - shown.from) * by, around + (shown.to - around) * by);
  const move = (by) => show(shown.from + by * length(), shown.to + by * length());

  function choose(i, bring = true) {
    chosen = i;
    hovered = -1;
    if (i >= 0 && bring && (spans.end[i] > shown.to || spans.start[i] < shown.from)) {
      const middle = (spans.start[i] + spans.end[i]) / 2;
      show(middle - length() / 2, middle + length() / 2);
    }
    later();
  }

  // Chooses a task and shows it with what it waited for.
  function goTo(i) {
    const wide = Math.max(spans.end[i] - Math.min(spans.start[i], spans.left[i]), least) * 6;
    const middle = (spans.start[i] + spans.end[i]) / 2;
    show(middle - wide / 2, middle + wide / 2);
    choose(i, false);
    canvas.scrollIntoView({ block: "nearest" });
  }

  // -- words

  function tell(i) {
    if (i < 0) {
      details.textContent = "Point at a task or at a gap, or tap it, to see what was waited for, and by whom.";
      return;
    }
    const kind = spans.kinds[spans.kind[i]], made = spans.by[i], of = spans.names[spans.of[i]];
    const what = { F: "forward", B: "backward", I: "input gradient", W: "weight gradient", U: "optimizer steps" }[kind];
    const task = kind === "U" ? "" : `, micro-batch ${spans.micro[i]}, run ${spans.run[i]}`;
    const before = i > spans.first[spans.worker[i]] ? spans.end[i - 1] : 0;
    const by = made >= 0 ? ` made by ${nameOf(spans, made)} on worker ${spans.worker[made]}` : "";
    const others = [];
    for (let d = dependents.heads[i]; d < dependents.heads[i + 1]; d++) others.push(dependents.found[d]);
    const needed = others.slice(0, 6).map((d) => `${nameOf(spans, d)} (worker ${spans.worker[d]}, ${spans.causes[spans.cause[d]]})`);
    details.textContent =
      `${nameOf(spans, i)}: ${what} of subnet ${spans.seq[i]}${task}, on worker ${spans.worker[i]}. ` +
      `${time(spans.start[i])} – ${time(spans.end[i])}, ${time(spans.length[i], 3)} long. ` +
      `Last to come: ${spans.causes[spans.cause[i]]}${of ? ` ${of}` : ""}${by}, ` +
      `left at ${time(spans.left[i])}, there at ${time(spans.ready[i])}. ` +
      `Its worker was idle for ${time(Math.max(0, spans.start[i] - before), 3)} before. ` +
      (needed.length ? `Waited for by: ${needed.join(", ")}${others.length > 6 ? ` and ${others.length - 6} more` : ""}.` : "Nobody waited for it last.");
  }

  // -- mouse and touch

  const touches = new Map();
  let moved = 0, pinch = null;

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    touches.set(event.pointerId, event.offsetX);
    moved = touches.size > 1 ? 99 : 0;
    pinch = null;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!touches.has(event.pointerId)) {
      if (event.pointerType === "mouse") hover(painter.hit(event.offsetX, event.offsetY, shown));
      return;
    }
    const before = touches.get(event.pointerId);
    touches.set(event.pointerId, event.offsetX);
    if (touches.size === 1) {
      moved += Math.abs(event.offsetX - before);
      if (moved > 4) move((before - event.offsetX) / painter.width());
    } else {
      const [a, b] = [...touches.values()];
      const apart = Math.max(12, Math.abs(a - b)), around = painter.timeAt((a + b) / 2, shown);
      if (pinch) zoom(pinch.apart / apart, pinch.around);
      pinch = { apart, around };
    }
  });
  function released(event) {
    if (touches.delete(event.pointerId) && event.type === "pointerup" && moved <= 4)
      choose(painter.hit(event.offsetX, event.offsetY, shown), false);
    pinch = null;
  }
  canvas.addEventListener("pointerup", released);
  canvas.addEventListener("pointercancel", released);
  canvas.addEventListener("pointerleave", () => hover(-1));
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY * 0.0022), painter.timeAt(event.offsetX, shown));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) move(event.deltaX / painter.width());
    else return; // the page scrolls
    event.preventDefault();
  }, { passive: false });

  function hover(i) {
    if (i !== hovered) later();
    hovered = i;
  }

  function scrub(event) {
    if (!event.buttons) return;
    const middle = map.timeAt(event.offsetX);
    show(middle - length() / 2, middle + length() / 2);
  }
  overview.addEventListener("pointerdown", (event) => { overview.setPointerCapture(event.pointerId); scrub(event); });
  overview.addEventListener("pointermove", scrub);

  // -- keys

  function step(by) {
    const start = chosen >= 0 ? chosen : firstAfter(spans, 0, shown.from) - by;
    if (start + by >= 0 && start + by < spans.n) choose(start + by);
  }
  function toWorker(by) {
    const worker = chosen >= 0 ? spans.worker[chosen] + by : 0;
    if (worker < 0 || worker >= spans.workers) return;
    const i = firstAfter(spans, worker, chosen >= 0 ? spans.start[chosen] : shown.from);
    if (i < spans.first[worker + 1]) choose(i);
  }
  const keys = {
    ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), "+": () => zoom(0.6), "=": () => zoom(0.6),
    "-": () => zoom(1 / 0.6), 0: () => show(whole.from, whole.to), n: () => step(1), p: () => step(-1),
    ArrowUp: () => toWorker(-1), ArrowDown: () => toWorker(1), Escape: () => choose(-1),
    Enter: () => chosen >= 0 && spans.by[chosen] >= 0 && choose(spans.by[chosen]),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    keys[event.key]();
    event.preventDefault();
  });

  at("zoom-in").onclick = () => zoom(0.5);
  at("zoom-out").onclick = () => zoom(2);
  at("earlier").onclick = () => move(-0.3);
  at("later").onclick = () => move(0.3);
  at("whole").onclick = () => show(whole.from, whole.to);
  return { draw, show, goTo };
}
