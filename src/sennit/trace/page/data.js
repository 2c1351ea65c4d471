// What the page shows, decoded. Columns are base64 of little-endian arrays; times count from the first task's start.

const DATA = JSON.parse(document.getElementById("data").textContent);

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };

function column({ type, base64 }) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new ARRAYS[type](bytes.buffer);
}

// Spans by worker and start: those of worker k are first[k] .. first[k + 1] - 1, and do not overlap.
function spansOf(packed) {
  const spans = { n: packed.n, workers: packed.workers, kinds: packed.kinds, causes: packed.causes, names: packed.of };
  for (const [name, packedColumn] of Object.entries(packed.columns)) spans[name] = column(packedColumn);
  spans.end = spans.start.map((start, i) => start + spans.length[i]);
  spans.first = new Int32Array(spans.workers + 1);
  for (let i = 0; i < spans.n; i++) spans.first[spans.worker[i] + 1]++;
  for (let k = 0; k < spans.workers; k++) spans.first[k + 1] += spans.first[k];
  spans.last = spans.end.reduce((a, b) => Math.max(a, b), 0);
  return spans;
}

function nameOf(spans, i) {
  const kind = spans.kinds[spans.kind[i]];
  return kind === "U" ? `U${spans.seq[i]}` : `${spans.run[i]}${kind}${spans.seq[i]}.${spans.micro[i]}`;
}

// The first span of a worker that ends after t.
function firstAfter(spans, worker, t) {
  let low = spans.first[worker], high = spans.first[worker + 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans.end[middle] > t) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The tasks that waited for each task last: dependents[heads[i] .. heads[i + 1] - 1].
function dependentsOf(spans) {
  const heads = new Int32Array(spans.n + 1);
  for (let i = 0; i < spans.n; i++) if (spans.by[i] >= 0) heads[spans.by[i] + 1]++;
  for (let i = 0; i < spans.n; i++) heads[i + 1] += heads[i];
  const next = heads.slice(), found = new Int32Array(heads[spans.n]);
  for (let i = 0; i < spans.n; i++) if (spans.by[i] >= 0) found[next[spans.by[i]]++] = i;
  return { heads, found };
}
