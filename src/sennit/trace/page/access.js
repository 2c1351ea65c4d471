// Who read and wrote which version of one layer, in the order of subnets.
//
//     worker 0   (3)───────▶(7)──────▶(12)        a circle: a subnet that uses the layer, on the worker that read it
//     worker 1         (5)──┘                     an arrow: it read the version that this subnet had left

function accessSection(access, spans) {
  const groups = Object.keys(access.groups);
  if (!groups.length) return;
  at("access-part").hidden = false;
  const select = at("access-group");
  for (const group of groups) select.append(element("option", { value: group }, group));
  const times = spans && timesOf(spans);
  const show = () => draw(access, select.value, times);
  select.onchange = show;
  select.dataset.groups = groups.length;
  redraws.push(show);
  show();
}

// First forward and last backward of each (worker, subnet), as far as the trace goes.
function timesOf(spans) {
  const found = new Map();
  for (let i = 0; i < spans.n; i++) {
    const key = `${spans.worker[i]} ${spans.seq[i]}`, kind = spans.kinds[spans.kind[i]];
    let held = found.get(key);
    if (!held) found.set(key, (held = { from: NaN, to: NaN }));
    if (kind === "F" && !(held.from <= spans.start[i])) held.from = spans.start[i];
    if (kind !== "F" && !(held.to >= spans.end[i])) held.to = spans.end[i];
  }
  return found;
}

function draw(access, group, times) {
  const { rows, leftOut } = access.groups[group];
  const when = (worker, seq, key) => {
    const t = times?.get(`${worker} ${seq}`)?.[key];
    return Number.isFinite(t) ? time(t) : "–";
  };
  at("access-note").textContent =
    `${rows.length} subnets use it${leftOut ? `; ${leftOut} earlier ones are left out` : ""}. An arrow leads from the subnet that left a version to the subnet that read it.`;
  const workers = 1 + Math.max(...rows.map((r) => Math.max(r[2], r[4])));
  const gap = 46, lane = 44, left = 66, width = left + rows.length * gap, height = workers * lane + 26;
  const svg = drawing("svg", { width, height, role: "img", "aria-label": `Accesses to ${group}` });
  const place = new Map(rows.map((r, i) => [r[0], i]));
  const x = (i) => left + i * gap, y = (worker) => 24 + worker * lane + lane / 2 - 8;
  for (let k = 0; k < workers; k++) {
    svg.append(drawing("line", { class: "axis", x1: left - 20, x2: width, y1: y(k), y2: y(k) }));
    svg.append(drawing("text", { x: 0, y: y(k) + 4 }, `worker ${k}`));
  }
  rows.forEach(([seq, read, reader], i) => {
    const from = place.get(read);
    if (from === undefined || from === i) return;
    const x0 = x(from) + 13, x1 = x(i) - 14, y0 = y(rows[from][2]), y1 = y(reader), bend = y0 === y1 && i - from > 1 ? 20 : 0;
    svg.append(drawing("path", { class: "edge", d: `M${x0} ${y0} C${x0 + 14} ${y0 - bend} ${x1 - 14} ${y1 - bend} ${x1} ${y1}` }));
    svg.append(drawing("path", { d: `M${x1 + 2} ${y1} l-6 -3.5 v7 z`, fill: style("soft") }));
  });
  rows.forEach(([seq, read, reader, wrote, writer], i) => {
    const dot = drawing("circle", { cx: x(i), cy: y(reader), r: 13, fill: colourOf(seq, "F") });
    const words = `subnet ${seq} read version ${version(read)} on worker ${reader}, ${wrote === null ? "wrote nothing" : `wrote ${version(wrote)} on worker ${writer}`}`;
    dot.append(drawing("title", {}, words));
    const name = drawing("text", { x: x(i), y: y(reader) + 4, "text-anchor": "middle" }, String(seq));
    name.style.fill = "#111";
    svg.append(dot, name);
  });
  at("access-chart").replaceChildren(svg);
  const table = at("access-table");
  table.replaceChildren(row(["subnet", "read version", "on worker", "forward from", "wrote version", "on worker", "backward to"], true));
  for (const [seq, read, reader, wrote, writer] of rows)
    table.append(row([String(seq), version(read), String(reader), { number: when(reader, seq, "from") }, wrote === null ? "–" : version(wrote), wrote === null ? "–" : String(writer), { number: when(reader, seq, "to") }]));
  table.dataset.rows = rows.length;
}

const version = (v) => (v === -1 ? "initial" : String(v));
