// Numbers, colours and elements.

function plain(x, digits = 4) {
  if (!Number.isFinite(x)) return "–";
  const text = Number(x.toPrecision(digits));
  return Math.abs(text) >= 1e4 || text === 0 ? text.toLocaleString("en") : String(text);
}

function time(t, digits = 4) {
  if (DATA.unit !== "s") return plain(t, digits);
  const size = Math.abs(t);
  if (size >= 1 || size === 0) return `${plain(t, digits)} s`;
  return size >= 1e-3 ? `${plain(t * 1e3, digits)} ms` : `${plain(t * 1e6, digits)} µs`;
}

const percent = (x) => `${(100 * x).toFixed(x >= 0.0995 ? 0 : 1)} %`;

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// A subnet keeps its hue everywhere; neighbours are far apart (golden angle). F is light, backwards are dark.
const HUE = 137.508;
const LIGHT = { F: 66, B: 42, I: 42, W: 54, U: 30 };
const colours = new Map();

function colourOf(seq, kind) {
  const key = `${kind}${seq}`;
  let found = colours.get(key);
  if (!found) {
    const strong = { W: 35, U: 0 }[kind] ?? 62;
    found = `hsl(${((seq * HUE) % 360).toFixed(1)} ${strong}% ${LIGHT[kind]}%)`;
    colours.set(key, found);
  }
  return found;
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key in made && typeof value !== "string") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function drawing(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const at = (id) => document.getElementById(id);

function swatch(colour, text) {
  const box = element("i");
  box.style.background = colour;
  return element("li", {}, box, text);
}

// Steps of an axis: 1, 2 or 5 times a power of ten, at most `most` of them.
function ticks(low, high, most) {
  const raw = (high - low) / Math.max(1, most);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * (1 - 1e-9));
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-12); k++) found.push(k * step);
  return found;
}
