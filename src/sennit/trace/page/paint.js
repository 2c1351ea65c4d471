// Paints the timeline: only what is visible, and of tasks narrower than a pixel one for each pixel.

const GUTTER = 30, AXIS = 22;

function sized(canvas, height) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth || 300;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return [context, width];
}

function paint(canvas, spans) {
  const row = spans.workers <= 4 ? 34 : spans.workers <= 20 ? 22 : 13;
  const height = spans.workers * row + AXIS + 2;
  const width = () => Math.max(50, (canvas.clientWidth || 300) - GUTTER);
  const timeAt = (x, shown) => shown.from + ((x - GUTTER) / width()) * (shown.to - shown.from);

  // The task at a place; in a gap the one that ended it, which knows why there is a gap.
  function hit(x, y, shown) {
    const worker = Math.floor(y / row);
    if (worker < 0 || worker >= spans.workers || x < GUTTER) return -1;
    const i = firstAfter(spans, worker, timeAt(x, shown));
    return i < spans.first[worker + 1] ? i : -1;
  }

  function draw(shown, focus, dependents) {
    const [context, full] = sized(canvas, height);
    const scale = (full - GUTTER) / (shown.to - shown.from);
    const x = (t) => GUTTER + (t - shown.from) * scale;
    const colour = {};
    for (const name of [...spans.causes, "link", "late", "front", "soft", "line", "back", "focus"]) colour[name] = style(name);
    context.clearRect(0, 0, full, height);
    context.font = `${Math.min(12, row - 3)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    axis(context, shown, x, full, colour);
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, full - GUTTER, height);
    context.clip();
    let drawn = 0;
    for (let worker = 0; worker < spans.workers; worker++) drawn += lane(context, worker, shown, x, colour);
    if (focus >= 0) links(context, focus, dependents, x, colour);
    context.restore();
    context.fillStyle = colour.soft;
    for (let worker = 0; worker < spans.workers; worker++) context.fillText(String(worker), 4, worker * row + row / 2);
    canvas.dataset.drawn = drawn;
    canvas.dataset.spans = spans.n;
    canvas.dataset.rows = spans.workers;
  }

  function lane(context, worker, shown, x, colour) {
    const top = worker * row + 1, tall = row - 2;
    let drawn = 0, filled = -1;
    for (let i = firstAfter(spans, worker, shown.from); i < spans.first[worker + 1]; i++) {
      const before = i > spans.first[worker] ? spans.end[i - 1] : 0;
      if (before > shown.to) break;
      gap(context, i, before, top, tall, x, colour);
      if (spans.start[i] > shown.to) break;
      const left = x(spans.start[i]), right = x(spans.end[i]);
      if (right - left < 1 && Math.floor(left) <= filled) continue; // its pixel is painted already
      filled = Math.floor(Math.max(right - 1, left));
      const kind = spans.kinds[spans.kind[i]];
      context.fillStyle = colourOf(spans.seq[i], kind);
      context.fillRect(left, top, Math.max(0.8, right - left - (right - left > 4 ? 0.6 : 0)), tall);
      drawn++;
      if (right - left > 26 && tall > 10) label(context, i, kind, Math.max(left, GUTTER), right, top, tall);
    }
    return drawn;
  }

  // Why the worker was idle before a task: until `left` waited, until `ready` on the way, then late.
  function gap(context, i, before, top, tall, x, colour) {
    const start = spans.start[i];
    if (x(start) - x(before) < 3) return;
    const left = Math.min(Math.max(spans.left[i], before), start), ready = Math.min(Math.max(spans.ready[i], left), start);
    const middle = top + tall / 2 - 2;
    const part = (from, to, name) => {
      if (to <= from) return;
      context.fillStyle = colour[name];
      context.fillRect(x(from), middle, Math.max(0.5, x(to) - x(from)), 4);
    };
    part(before, left, spans.causes[spans.cause[i]]);
    part(left, ready, "link");
    part(ready, start, "late");
  }

  function label(context, i, kind, left, right, top, tall) {
    const long = kind === "U" ? `U ${spans.seq[i]}` : `${kind} ${spans.seq[i]}.${spans.micro[i]}`;
    const text = [long, String(spans.seq[i])].find((t) => context.measureText(t).width < right - left - 6);
    if (!text) return;
    context.fillStyle = kind === "F" ? "#111" : "#fff";
    context.fillText(text, left + 3, top + tall / 2 + 0.5);
  }

  function axis(context, shown, x, full, colour) {
    const bottom = spans.workers * row;
    context.strokeStyle = colour.line;
    context.fillStyle = colour.soft;
    context.lineWidth = 1;
    context.beginPath();
    const marks = ticks(shown.from, shown.to, Math.max(2, Math.floor(full / 110)));
    for (const t of marks) {
      const at = Math.round(x(t)) + 0.5;
      context.moveTo(at, 0);
      context.lineTo(at, bottom + 5);
      const text = time(t, 6), half = context.measureText(text).width / 2;
      if (at + half < full) context.fillText(text, Math.max(GUTTER, at - half), bottom + AXIS / 2 + 2);
    }
    for (let k = 0; k <= spans.workers; k++) {
      context.moveTo(GUTTER, k * row + 0.5);
      context.lineTo(full, k * row + 0.5);
    }
    context.stroke();
  }

  // The focused task, the one that it waited for, and those that waited for it.
  function links(context, focus, dependents, x, colour) {
    const box = (i, name, wide) => {
      context.strokeStyle = colour[name];
      context.lineWidth = wide;
      const left = x(spans.start[i]);
      context.strokeRect(left, spans.worker[i] * row + 1, Math.max(2, x(spans.end[i]) - left), row - 2);
    };
    const arrow = (from, to) => {
      const x0 = x(Math.min(spans.end[from], Math.max(spans.left[to], spans.start[from]))), x1 = x(spans.start[to]);
      const y0 = (spans.worker[from] + 0.5) * row, y1 = (spans.worker[to] + 0.5) * row;
      const bend = Math.max(12, Math.abs(x1 - x0) / 2), lift = y0 === y1 ? row * 0.8 : 0;
      context.strokeStyle = context.fillStyle = colour[spans.causes[spans.cause[to]]];
      context.lineWidth = 2;
      context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo(x0 + bend, y0 + lift, x1 - bend, y1 + lift, x1 - 1, y1);
      context.stroke();
      context.beginPath();
      context.moveTo(x1, y1);
      context.lineTo(x1 - 7, y1 - 4);
      context.lineTo(x1 - 7, y1 + 4);
      context.fill();
    };
    if (spans.by[focus] >= 0) {
      box(spans.by[focus], "front", 2);
      arrow(spans.by[focus], focus);
    }
    for (let d = dependents.heads[focus]; d < Math.min(dependents.heads[focus + 1], dependents.heads[focus] + 40); d++) {
      box(dependents.found[d], "soft", 1.5);
      arrow(focus, dependents.found[d]);
    }
    box(focus, "focus", 3);
  }

  return { draw, hit, timeAt, width };
}

// A strip of the whole trace: how many workers are busy, and the window that is shown.
function paintOverview(canvas, spans, whole) {
  let busy = new Float32Array(0);

  function count(width) {
    busy = new Float32Array(width);
    const scale = width / whole.to;
    for (let i = 0; i < spans.n; i++) {
      const from = spans.start[i] * scale, to = spans.end[i] * scale;
      for (let p = Math.floor(from); p < Math.min(to, width); p++) busy[p] += Math.min(to, p + 1) - Math.max(from, p);
    }
  }

  function draw(shown) {
    const height = 30, [context, full] = sized(canvas, height);
    const wide = Math.max(50, Math.floor(full - GUTTER));
    if (busy.length !== wide) count(wide);
    context.clearRect(0, 0, full, height);
    context.fillStyle = style("panel");
    context.fillRect(GUTTER, 0, wide, height);
    context.fillStyle = style("value");
    for (let p = 0; p < wide; p++) {
      const tall = (height - 4) * Math.min(1, busy[p] / spans.workers);
      context.fillRect(GUTTER + p, height - 2 - tall, 1, tall);
    }
    const from = GUTTER + (shown.from / whole.to) * wide, to = GUTTER + (shown.to / whole.to) * wide;
    context.strokeStyle = style("focus");
    context.lineWidth = 2;
    context.strokeRect(from + 1, 1, Math.max(2, to - from - 2), height - 2);
    context.fillStyle = style("soft");
    context.font = "9px system-ui, sans-serif";
    context.fillText("busy", 2, height / 2 + 3);
  }

  const timeAt = (x) => ((x - GUTTER) / Math.max(50, (canvas.clientWidth || 300) - GUTTER)) * whole.to;
  return { draw, timeAt };
}
