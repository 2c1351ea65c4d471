// Puts the page together. Texts from outside go into text nodes alone, never into markup.

const redraws = [];

function fill() {
  document.title = `${DATA.title} – sennit`;
  at("title").textContent = DATA.title;
  at("subtitle").textContent = DATA.subtitle;
  for (const [name, value] of DATA.tiles) at("tiles").append(element("div", { class: "tile" }, element("b", {}, value), element("span", {}, name)));
  let view = null, spans = null;
  if (DATA.spans?.n) {
    spans = spansOf(DATA.spans);
    at("timeline-part").hidden = false;
    at("timeline-note").textContent = DATA.spans.note;
    view = timeline(spans);
    redraws.push(view.draw);
    legend(spans);
    view.draw();
    bubbleSection(DATA.bubble);
    idleSection(DATA.idle, DATA.longShare, { view, spans });
    heldSection(spans);
    countersSection(DATA.counters);
    follow(view, spans);
  }
  if (DATA.loss) lossSection(DATA.loss);
  if (DATA.access) accessSection(DATA.access, spans);
  factsSection(DATA.facts);
}

function legend(spans) {
  const list = at("legend");
  const kinds = { F: "forward", B: "backward", I: "input gradient", W: "weight gradient", U: "optimizer steps" };
  list.append(element("li", {}, "A colour for each subnet:"));
  for (const kind of "FBIWU") if (spans.kinds.includes(kind)) list.append(swatch(`hsl(0 0% ${LIGHT[kind]}%)`, kinds[kind]));
  list.append(element("li", {}, "Between tasks, what was waited for:"));
  const there = new Set(spans.cause);
  const ramps = ["ramp-up", "ramp-down"].filter((part) => DATA.bubble.workers.some((worker) => worker[part] > 0));
  for (const name of [...spans.causes.filter((_, k) => there.has(k)), "link", "late"]) list.append(swatch(`var(--${name})`, name));
  if (ramps.length) list.append(element("li", {}, "In the bars of the bubble also:"));
  for (const name of ramps) list.append(swatch(`var(--${name})`, name));
}

// report.html#3F17.0 opens at that task.
function follow(view, spans) {
  const go = () => {
    const wanted = decodeURIComponent(location.hash.slice(1));
    if (!wanted) return;
    for (let i = 0; i < spans.n; i++) if (nameOf(spans, i) === wanted) return view.goTo(i);
  };
  addEventListener("hashchange", go);
  go();
}

const mark = document.documentElement.dataset;
mark.errors = "0";
addEventListener("error", (event) => {
  mark.errors = String(Number(mark.errors) + 1);
  mark.error = String(event.message);
});
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return; // a phone's address bar comes and goes
  width = innerWidth;
  redraws.forEach((draw) => draw());
});
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", () => redraws.forEach((draw) => draw()));
fill();
mark.ready = "1";
