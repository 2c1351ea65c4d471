// Line charts as SVG. A series with more points than pixels is drawn by the least and the greatest of each pixel.

function lineChart(holder, { series, label, format = plain, across = plain, from = null, until = null, steps = false }) {
  function draw() {
    const width = Math.max(260, holder.clientWidth), height = width < 600 ? 170 : 210;
    const left = 54, right = 12, top = 16, bottom = 22;
    const all = series.filter((s) => s.y.length);
    const xs = all.flatMap((s) => [s.x[0], s.x[s.x.length - 1]]);
    let low = Infinity, high = -Infinity;
    for (const s of all) for (const y of s.y) if (Number.isFinite(y)) { low = Math.min(low, y); high = Math.max(high, y); }
    if (!(high >= low)) return;
    if (from !== null) low = Math.min(low, from);
    if (high === low) high = low + (Math.abs(low) || 1);
    const x0 = until === null ? Math.min(...xs) : 0, x1 = until ?? (Math.max(...xs) || 1);
    const x = (v) => left + ((v - x0) / (x1 - x0 || 1)) * (width - left - right);
    const y = (v) => height - bottom - ((v - low) / (high - low)) * (height - top - bottom);
    const svg = drawing("svg", { width, height, role: "img", "aria-label": label });
    for (const v of ticks(low, high, 4)) {
      svg.append(drawing("line", { class: "axis", x1: left, x2: width - right, y1: y(v), y2: y(v) }));
      svg.append(drawing("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, format(v)));
    }
    for (const v of ticks(x0, x1, Math.floor(width / 120)))
      svg.append(drawing("text", { x: x(v), y: height - 6, "text-anchor": v === x0 ? "start" : "middle" }, across(v)));
    for (const s of all) {
      const colour = style(s.colour);
      if (s.dots)
        for (let i = 0; i < s.x.length; i++) svg.append(drawing("circle", { cx: x(s.x[i]), cy: y(s.y[i]), r: 3, fill: colour }));
      svg.append(drawing("path", { d: path(s, x, y, width), fill: "none", stroke: colour, "stroke-width": s.wide ?? 1.5, "stroke-opacity": s.faint ?? 1 }));
    }
    const names = drawing("text", { x: left, y: 11 });
    all.forEach((s, k) => {
      const name = drawing("tspan", { dx: k ? 12 : 0, "fill-opacity": s.faint ? 0.7 : 1, "font-weight": s.wide > 1.5 ? 700 : 400 }, s.name);
      name.style.fill = style(s.colour);
      names.append(name);
    });
    svg.append(names);
    holder.replaceChildren(svg);
  }

  function path(s, x, y, width) {
    const parts = [];
    const put = (px, py) => parts.push(`${parts.length ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`);
    if (s.x.length <= 2 * width) {
      for (let i = 0; i < s.x.length; i++) {
        if (!Number.isFinite(s.y[i])) continue;
        if (steps && i) put(x(s.x[i]), y(s.y[i - 1]));
        put(x(s.x[i]), y(s.y[i]));
      }
      return parts.join("");
    }
    let held = 0;
    for (let i = 0; i < s.x.length;) {
      const pixel = Math.floor(x(s.x[i]));
      let least = Infinity, greatest = -Infinity;
      for (; i < s.x.length && Math.floor(x(s.x[i])) === pixel; i++) {
        if (s.y[i] < least) least = s.y[i];
        if (s.y[i] > greatest) greatest = s.y[i];
      }
      if (!(greatest >= least)) continue;
      if (steps && parts.length) put(pixel, y(held));
      put(pixel, y(greatest));
      put(pixel, y(least));
      held = s.y[i - 1];
    }
    return parts.join("");
  }

  redraws.push(draw);
  draw();
}

// Mean of the last `wide` values at each point.
function smooth(values, wide) {
  const found = new Float64Array(values.length);
  let sum = 0;
  for (let i = 0; i < values.length; i++) {
    sum += values[i] - (i >= wide ? values[i - wide] : 0);
    found[i] = sum / Math.min(i + 1, wide);
  }
  return found;
}
