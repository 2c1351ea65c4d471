// The other sections of the page, each shown if the data has it.

function row(cells, head = false) {
  const made = element("tr");
  for (const cell of cells) {
    const text = typeof cell === "number" ? plain(cell) : cell;
    made.append(element(head ? "th" : "td", typeof cell === "number" || cell?.number ? { class: "number" } : {}, cell?.number ?? text));
  }
  return made;
}

function bubbleSection({ bubble, makespan, parts: all, workers: nearest, inTheEnd, note }) {
  at("bubble-part").hidden = false;
  const select = at("bubble-view"), bars = at("bubble-bars"), table = at("bubble-table");
  bars.classList.toggle("many", nearest.length > 12);
  function show() {
    const workers = select.value === "end" ? inTheEnd : nearest;
    const parts = all.filter((part) => workers.some((worker) => worker[part] > 0));
    const share = (part) => workers.reduce((sum, worker) => sum + (worker[part] ?? 0), 0) / makespan / workers.length;
    const idle = (worker) => parts.reduce((sum, part) => sum + (worker[part] ?? 0), 0);
    at("bubble-note").textContent =
      `Idle ${percent(bubble)} of ${workers.length} workers × ${time(makespan)}: ` +
      `${parts.filter((part) => share(part) >= 0.0005).map((part) => `${part} ${percent(share(part))}`).join(", ")}. ${note}`;
    bars.replaceChildren();
    table.replaceChildren(row(["worker", ...parts, "idle"], true));
    workers.forEach((worker, k) => {
      bars.append(element("span", {}, `worker ${k}`), track(worker, k, parts, makespan), element("span", {}, percent(idle(worker) / makespan)));
      table.append(row([String(k), ...[...parts.map((part) => worker[part] ?? 0), idle(worker)].map((t) => ({ number: time(t, 3) }))]));
    });
  }
  select.onchange = show;
  show();
}

function track(worker, k, parts, makespan) {
  const made = element("div", { class: "track", role: "img" }), words = [];
  for (const part of parts) {
    if (!worker[part]) continue;
    const share = worker[part] / makespan, box = element("div", { title: `${part}: ${time(worker[part])}, ${percent(share)}` });
    box.style.cssText = `width:${100 * share}%;background:var(--${part})`;
    made.append(box);
    words.push(`${part} ${percent(share)}`);
  }
  made.setAttribute("aria-label", `Worker ${k}: ${words.join(", ") || "never idle"}`);
  return made;
}

const SHOWN_ROWS = innerWidth < 600 ? 12 : 40;

function idleSection(idle, share, timelineOf) {
  at("idle-part").hidden = false;
  at("idle-note").textContent = idle.length
    ? `${idle.length} intervals of at least ${plain(100 * share)} % of the makespan, the longest first.`
    : `No worker was idle for ${plain(100 * share)} % of the makespan or longer at a time.`;
  const table = at("idle-table"), more = at("idle-more");
  table.dataset.intervals = idle.length;
  if (!idle.length) return;
  table.append(row(["worker", "from", "idle", "of it", "before", "why"], true));
  const add = (rows) => {
    for (const { worker, start, end, parts, before, words } of rows) {
      const split = parts.map(([what, length]) => `${what} ${time(length, 3)}`).join(", ");
      const name = before < 0 ? "–" : element("button", { type: "button" }, nameOf(timelineOf.spans, before));
      if (before >= 0) name.onclick = () => timelineOf.view.goTo(before);
      table.append(row([String(worker), { number: time(start) }, { number: time(end - start, 3) }, split, name, words]));
    }
  };
  add(idle.slice(0, SHOWN_ROWS));
  if (idle.length > SHOWN_ROWS) {
    more.hidden = false;
    more.textContent = `Show ${idle.length - SHOWN_ROWS} more`;
    more.onclick = () => { add(idle.slice(SHOWN_ROWS)); more.hidden = true; };
  }
}

// Micro-batches between forward and backward: +1 at the end of F, -1 at the end of B, or of W where backwards are split.
function heldSection(spans) {
  at("held-part").hidden = false;
  const split = spans.kinds.includes("W");
  function held(worker) {
    const events = [];
    const from = worker < 0 ? 0 : spans.first[worker], to = worker < 0 ? spans.n : spans.first[worker + 1];
    for (let i = from; i < to; i++) {
      const kind = spans.kinds[spans.kind[i]];
      if (kind === "F") events.push([spans.end[i], 1]);
      else if (kind === (split ? "W" : "B")) events.push([spans.end[i], -1]);
    }
    events.sort((a, b) => a[0] - b[0]);
    const x = [0], y = [0];
    for (const [t, change] of events) {
      x.push(t);
      y.push(Math.max(0, y[y.length - 1] + change));
    }
    return { x, y };
  }
  const select = at("held-worker"), holder = at("held-chart");
  select.append(element("option", { value: "-1" }, "all together"));
  for (let k = 0; k < spans.workers; k++) select.append(element("option", { value: String(k) }, String(k)));
  const show = () => {
    const found = held(Number(select.value));
    holder.dataset.most = found.y.reduce((a, b) => Math.max(a, b), 0);
    lineChart(holder, { series: [{ ...found, name: "micro-batches held", colour: "value" }], label: "Micro-batches held over time", across: time, from: 0, steps: true });
  };
  select.onchange = show;
  show();
}

function countersSection(counters) {
  if (!counters.length) return;
  at("counters-part").hidden = false;
  for (const { name, workers } of counters) {
    const holder = element("div", { class: "chart" });
    at("counters").append(element("h3", {}, name), holder);
    const palette = DATA.spans.causes;
    const series = workers.map(({ worker, x, y }, k) => ({ name: `worker ${worker}`, x, y, colour: palette[k % palette.length], dots: x.length < 50 }));
    lineChart(holder, { series, label: name, across: time, from: 0 });
  }
}

function lossSection({ losses, first, stride, evaluations }) {
  const values = column(losses);
  if (!values.length) return;
  at("loss-part").hidden = false;
  const x = Array.from(values, (_, i) => first + i * stride), wide = Math.max(1, Math.min(50, Math.floor(values.length / 12)));
  at("loss-note").textContent = `Of each subnet, in order${stride > 1 ? `, every ${stride}th` : ""}; the strong line is the mean of the last ${wide * stride}. A single loss says little: every subnet is another network.`;
  lineChart(at("loss-chart"), { series: [
    { name: "loss", x, y: values, colour: "value", faint: 0.35, wide: 1 },
    { name: "mean", x, y: smooth(values, wide), colour: "value", wide: 2 },
  ], label: "Loss by subnet" });
  at("loss-chart").dataset.points = values.length;
  if (!evaluations.length) return;
  const points = (key) => evaluations.filter((e) => Number.isFinite(e[key]));
  lineChart(at("score-chart"), { series: ["best", "mean"].map((key, k) => ({
    name: `${evaluations[0].metric}, ${key}`, x: points(key).map((e) => e.seq_id), y: points(key).map((e) => e[key]), colour: ["gradient", "link"][k], dots: true,
  })), label: "Evaluations by subnet", until: x[x.length - 1] });
}

function factsSection(facts) {
  if (!facts.length) return;
  at("facts-part").hidden = false;
  for (const { title, rows, text } of facts) {
    if (text) at("facts").append(element("details", {}, element("summary", {}, title), element("pre", {}, text)));
    if (!rows.length) continue;
    at("facts").append(element("h3", {}, title));
    const list = element("dl");
    for (const [name, value] of rows) list.append(element("dt", {}, name), element("dd", {}, String(value)));
    at("facts").append(list);
  }
}
