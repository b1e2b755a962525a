"use strict";
// The Gantt chart: every bar adds the part of each pixel that it covers, so that what is thinner than a pixel is averaged.
class Gantt {
  constructor(canvas, told, legend) {
    this.canvas = canvas; this.told = told; this.legend = legend;
    this.colourBy = "job"; this.found = null; this.run = null; this.waiting = false; this.fingers = new Map();
    canvas.addEventListener("wheel", e => { e.preventDefault(); this.zoom(Math.exp(e.deltaY * 0.0015), this.timeAt(e)); }, {passive: false});
    canvas.addEventListener("pointerdown", e => { this.fingers.set(e.pointerId, e); this.dragged = false; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", e => this.moved(e));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, e => this.fingers.delete(e.pointerId));
    canvas.addEventListener("click", e => { const hit = this.chosen && !this.dragged ? this.barAt(e) : -1; if (hit >= 0) this.chosen(this.run.bars.job[hit]); });
    canvas.addEventListener("keydown", e => this.key(e));
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  show(run) {
    this.run = run; this.found = null;
    const bars = run.bars, nodes = run.nodes;
    this.longest = 0;
    for (let i = 0; i < bars.length.length; i++) if (bars.length[i] > this.longest) this.longest = bars.length[i];
    this.canvas.style.height = Math.round(Math.min(Math.max(nodes.height * 16 + 24, 140), 640)) + "px";
    this.reset();
  }

  reset() {
    const {start_s, end_s} = this.run;
    this.from = start_s; this.to = end_s > start_s ? end_s : start_s + 1;
    this.draw();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    const whole = Math.max(this.run.end_s - this.run.start_s, 1e-3);
    const span = Math.min(Math.max((this.to - this.from) * factor, whole * 1e-7), whole * 1.1);
    const share = (at - this.from) / (this.to - this.from);
    this.from = at - share * span; this.to = this.from + span;
    this.pan(0);
  }

  pan(seconds) {
    const span = this.to - this.from, slack = span * 0.05;
    let from = this.from + seconds;
    from = Math.min(Math.max(from, this.run.start_s - slack), Math.max(this.run.end_s + slack - span, this.run.start_s - slack));
    this.from = from; this.to = from + span;
    this.draw();
  }

  search(text) {
    if (!text) { this.found = null; this.draw(); return 0; }
    const wanted = text.toLowerCase(), ids = this.run.jobs.ids;
    this.found = new Uint8Array(ids.length);
    let count = 0;
    ids.forEach((id, job) => { if (id.toLowerCase().includes(wanted)) { this.found[job] = 1; count++; } });
    this.draw();
    return count;
  }

  showFound() {
    if (!this.found) return;
    const {start, length, job} = this.run.bars;
    let from = Infinity, to = -Infinity;
    for (let i = 0; i < start.length; i++) if (this.found[job[i]]) {
      from = Math.min(from, start[i]); to = Math.max(to, start[i] + length[i]);
    }
    if (from > to) return;
    const margin = Math.max((to - from) * 0.1, 1e-6);
    this.from = from - margin; this.to = to + margin;
    this.draw();
  }

  key(e) {
    const step = (this.to - this.from) / 8;
    const does = {ArrowLeft: () => this.pan(-step), ArrowRight: () => this.pan(step), "+": () => this.zoom(0.7), "=": () => this.zoom(0.7),
      ArrowUp: () => this.zoom(0.7), ArrowDown: () => this.zoom(1 / 0.7), "-": () => this.zoom(1 / 0.7), "0": () => this.reset(), Home: () => this.reset()}[e.key];
    if (does) { e.preventDefault(); does(); }
  }

  moved(e) {
    const before = this.fingers.get(e.pointerId);
    if (!before) { this.tell(e); return; }
    if (Math.abs(e.clientX - before.clientX) > 2) this.dragged = true;
    const perPixel = (this.to - this.from) / Math.max(this.canvas.clientWidth - this.left, 1);
    if (this.fingers.size === 2) {
      const [other] = [...this.fingers.values()].filter(each => each.pointerId !== e.pointerId);
      const was = Math.abs(before.clientX - other.clientX), is = Math.abs(e.clientX - other.clientX);
      if (was > 5 && is > 5) this.zoom(was / is, this.timeAt(other));
    } else this.pan((before.clientX - e.clientX) * perPixel);
    this.fingers.set(e.pointerId, e);
  }

  timeAt(e) {
    const box = this.canvas.getBoundingClientRect();
    return this.from + (e.clientX - box.left - this.left) / Math.max(box.width - this.left, 1) * (this.to - this.from);
  }

  // The bar below the pointer, or -1.
  barAt(e) {
    const box = this.canvas.getBoundingClientRect(), {bars, nodes} = this.run;
    const at = this.timeAt(e), lane = (e.clientY - box.top) / Math.max(box.height - 20, 1) * nodes.height;
    let hit = -1, near = (this.to - this.from) / Math.max(box.width, 1);
    for (let i = this.first(at - this.longest - near); i < bars.start.length && bars.start[i] <= at + near; i++) {
      if (bars.start[i] + bars.length[i] >= at - near && bars.top[i] <= lane && lane < bars.top[i] + bars.height[i]) hit = i;
    }
    return hit;
  }

  tell(e) {
    const {bars, jobs, nodes} = this.run, hit = this.barAt(e);
    if (hit < 0) { this.told.textContent = "\u00a0"; return; }
    const job = bars.job[hit], tenant = jobs.tenants[jobs.tenant[job]];
    const parts = [`${jobs.ids[job]}, ${bars.tasks[bars.task[hit]]} on ${nodes.names[bars.node[hit]]}`,
      `${seconds(bars.start[hit])} to ${seconds(bars.start[hit] + bars.length[hit])} (${seconds(bars.length[hit])})`];
    if (tenant) parts.push(`tenant ${tenant}`);
    if (bars.set_up[hit] > 0) parts.push(`set-up ${seconds(bars.set_up[hit])}`);
    parts.push(["finished", "preempted", "failed", "still running"][bars.outcome[hit]]);
    if (jobs.queueing_s[job] >= 0) parts.push(`the job waited ${seconds(jobs.queueing_s[job])}`);
    this.told.textContent = parts.join("; ");
  }

  // The first bar that starts at or after a time; bars are in order of start.
  first(time) {
    const start = this.run.bars.start;
    let low = 0, high = start.length;
    while (low < high) { const middle = (low + high) >> 1; if (start[middle] < time) low = middle + 1; else high = middle; }
    return low;
  }

  keyOf(bar) {
    const {bars, jobs, nodes} = this.run;
    switch (this.colourBy) {
      case "tenant": return jobs.tenant[bars.job[bar]];
      case "priority": return jobs.priority[bars.job[bar]];
      case "type": return Math.max(nodes.type[bars.node[bar]], 0);
      default: return bars.job[bar];
    }
  }

  draw() {
    if (!this.run || this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.paint(); });
  }

  paint() {
    const began = performance.now();
    const ratio = Math.min(devicePixelRatio || 1, 2), wide = this.canvas.clientWidth, high = this.canvas.clientHeight;
    if (!wide || !high) return;
    const pen = this.canvas.getContext("2d"), names = this.run.nodes.names;
    this.canvas.width = Math.round(wide * ratio); this.canvas.height = Math.round(high * ratio);
    pen.scale(ratio, ratio);
    pen.font = "12px system-ui, sans-serif";
    const longest = Math.max(...names.slice(0, 200).map(name => pen.measureText(name.slice(0, LONGEST)).width));
    this.left = Math.round(Math.min(longest + 10, wide * 0.25, 160));
    const look = getComputedStyle(document.documentElement);
    this.ink = look.getPropertyValue("--ink").trim(); this.line = look.getPropertyValue("--line").trim();
    this.down = look.getPropertyValue("--down").trim();
    const area = {x: this.left, wide: wide - this.left, high: high - 20, ratio};
    this.axis(pen, area);
    this.ink_pixels = this.cover(pen, area);
    this.marks(pen, area);
    this.explain();
    this.canvas.dataset.drawnMs = (performance.now() - began).toFixed(1);
    this.canvas.dataset.covered = String(this.ink_pixels);
    this.canvas.dataset.spanS = String(this.to - this.from);
  }

  cover(pen, {x, wide, high, ratio}) {
    const W = Math.max(Math.round(wide * ratio), 1), H = Math.max(Math.round(high * ratio), 1);
    const {bars, nodes} = this.run, red = new Float32Array(W * H), green = new Float32Array(W * H), blue = new Float32Array(W * H), part = new Float32Array(W * H);
    const across = W / (this.to - this.from), down = H / nodes.height, gap = Math.min(down * 0.06, 1);
    const add = (left, right, top, bottom, [r, g, b], strength) => {
      left = Math.max(left, 0); right = Math.min(right, W);
      const rows = [Math.max(Math.floor(top), 0), Math.min(Math.ceil(bottom), H)], columns = [Math.floor(left), Math.min(Math.ceil(right), W)];
      for (let row = rows[0]; row < rows[1]; row++) {
        const inRow = (Math.min(bottom, row + 1) - Math.max(top, row)) * strength;
        for (let column = columns[0], at = row * W + column; column < columns[1]; column++, at++) {
          const share = inRow * (Math.min(right, column + 1) - Math.max(left, column));
          red[at] += share * r; green[at] += share * g; blue[at] += share * b; part[at] += share;
        }
      }
    };
    for (let i = this.first(this.from - this.longest); i < bars.start.length && bars.start[i] < this.to; i++) {
      const end = bars.start[i] + bars.length[i];
      if (end < this.from) continue;
      const left = (bars.start[i] - this.from) * across, right = (end - this.from) * across;
      const top = bars.top[i] * down, bottom = (bars.top[i] + bars.height[i]) * down, inset = Math.min(gap, (bottom - top) * 0.1);
      const colour = hue(this.keyOf(i)), strength = this.found && !this.found[bars.job[i]] ? 0.12 : 1;
      const ready = bars.set_up[i] > 0 ? left + bars.set_up[i] * across : left;
      if (ready > left) add(left, Math.min(ready, right), top + inset, bottom - inset, colour, strength * 0.4);
      const seam = right - ready > 3 ? 1 : 0;
      add(ready, right - seam, top + inset, bottom - inset, colour, strength);
    }
    const image = pen.createImageData(W, H), out = image.data;
    let covered = 0;
    for (let at = 0; at < part.length; at++) if (part[at] > 0) {
      const share = part[at];
      out[4 * at] = red[at] / share; out[4 * at + 1] = green[at] / share; out[4 * at + 2] = blue[at] / share;
      out[4 * at + 3] = Math.min(share, 1) * 255;
      if (share > 0.1) covered++;
    }
    const layer = document.createElement("canvas");
    layer.width = W; layer.height = H;
    layer.getContext("2d").putImageData(image, 0, 0);
    pen.drawImage(layer, x, 0, wide, high);
    return covered;
  }

  axis(pen, {x, wide, high}) {
    const {nodes, outages} = this.run, down = high / nodes.height;
    pen.fillStyle = this.ink; pen.strokeStyle = this.line; pen.lineWidth = 1; pen.textBaseline = "middle"; pen.textAlign = "right";
    let last = -Infinity;
    nodes.names.forEach((name, node) => {
      const middle = (nodes.first[node] + nodes.count[node] / 2) * down;
      if (!nodes.count[node] || middle < last + 13) return;
      pen.fillText(clipped(pen, name, x - 8), x - 6, middle); last = middle;
    });
    const step = roundStep((this.to - this.from) / Math.max(wide / 85, 1));
    pen.textAlign = "center";
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const place = x + (at - this.from) / (this.to - this.from) * wide;
      pen.beginPath(); pen.moveTo(place, 0); pen.lineTo(place, high); pen.stroke();
      const half = pen.measureText(seconds(at)).width / 2;
      if (place - half >= x && place + half <= x + wide) pen.fillText(seconds(at), place, high + 11);
    }
    pen.save(); pen.beginPath(); pen.rect(x, 0, wide, high); pen.clip(); pen.strokeStyle = this.down;
    for (let i = 0; i < outages.node.length; i++) {
      const left = x + (outages.start[i] - this.from) / (this.to - this.from) * wide, right = x + (outages.end[i] - this.from) / (this.to - this.from) * wide;
      if (right < x || left > x + wide) continue;
      const top = nodes.first[outages.node[i]] * down, tall = nodes.count[outages.node[i]] * down;
      pen.save(); pen.beginPath(); pen.rect(left, top, Math.max(right - left, 1), tall); pen.clip(); pen.beginPath();
      for (let at = Math.max(left, x) - tall; at < Math.min(right, x + wide); at += 6) { pen.moveTo(at, top + tall); pen.lineTo(at + tall, top); }
      pen.stroke(); pen.restore();
    }
    pen.restore();
  }

  marks(pen, {x, wide, high}) {
    const {bars, jobs, nodes} = this.run, down = high / nodes.height, across = wide / (this.to - this.from);
    let labels = 0, stops = 0;
    pen.save(); pen.beginPath(); pen.rect(x, 0, wide, high); pen.clip();
    pen.textAlign = "center"; pen.textBaseline = "middle"; pen.font = "11px system-ui, sans-serif";
    for (let i = this.first(this.from - this.longest); i < bars.start.length && bars.start[i] < this.to; i++) {
      const end = bars.start[i] + bars.length[i];
      if (end < this.from || this.found && !this.found[bars.job[i]]) continue;
      const left = Math.max(x + (bars.start[i] - this.from) * across, x), right = x + (end - this.from) * across;
      const middle = (bars.top[i] + bars.height[i] / 2) * down, tall = bars.height[i] * down, seen = Math.min(right, x + wide);
      if (tall >= 12 && seen - left > 24 && labels < 1500) {
        const name = jobs.ids[bars.job[i]];
        if (name.length < LONGEST && pen.measureText(name).width < seen - left - 6) { pen.fillStyle = inkOn(hue(this.keyOf(i))); pen.fillText(name, (left + seen) / 2, middle); labels++; }
      }
      const outcome = bars.outcome[i];
      if ((outcome === 1 || outcome === 2) && stops++ < 3000) {
        const size = Math.min(5, tall / 2);
        pen.strokeStyle = this.ink; pen.lineWidth = 1.5; pen.beginPath();
        if (outcome === 1) { pen.moveTo(right, middle - size); pen.lineTo(right, middle + size); }
        else { pen.moveTo(right - size, middle - size); pen.lineTo(right + size, middle + size); pen.moveTo(right - size, middle + size); pen.lineTo(right + size, middle - size); }
        pen.stroke();
      }
    }
    pen.restore();
  }

  explain() {
    const {jobs, types} = this.run;
    const names = {tenant: jobs.tenants, priority: jobs.priorities, type: types}[this.colourBy];
    this.legend.replaceChildren();
    if (!names) { this.legend.textContent = "One colour per job; colours repeat."; return; }
    names.slice(0, 24).forEach((name, place) => {
      const swatch = document.createElement("span");
      swatch.className = "swatch"; swatch.style.background = `rgb(${hue(place).join(",")})`;
      this.legend.append(swatch, name || "(none)");
    });
    if (names.length > 24) this.legend.append(` and ${names.length - 24} more`);
  }
}

// The palette of dagsim/pictures/colours.py, which replaces the mark; then lighter and darker: neighbours differ in hue.
const COLOURS = "@COLOURS@".split(" ");
const HUES = COLOURS.map(colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16)));
const shaded = (part, shade) => Math.round(shade > 0 ? part + (255 - part) * shade : part * (1 + shade));
const SHADES = [0, 0.35, -0.3].flatMap(shade => HUES.map(colour => colour.map(part => shaded(part, shade))));
function hue(key) { return SHADES[key % SHADES.length]; }
function inkOn([r, g, b]) { return 0.299 * r + 0.587 * g + 0.114 * b > 115 ? "#000" : "#fff"; }

// No label has room for more characters, and measuring all of a name of 10 kB again and again takes minutes.
const LONGEST = 200;

function clipped(pen, text, room) {
  let shown = text.slice(0, LONGEST);
  if (shown.length === text.length && pen.measureText(text).width <= room) return text;
  while (shown.length > 1 && pen.measureText(shown + "\u2026").width > room) shown = shown.slice(0, -1);
  return shown + "\u2026";
}

const STEPS = [1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200,
  10800, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000, 31536000, 63072000, 157680000];
function roundStep(least) { return STEPS.find(step => step >= least) || STEPS[STEPS.length - 1]; }

function seconds(time) {
  const size = Math.abs(time);
  if (size < 1e-9) return "0";
  if (size < 1e-3) return +(time * 1e6).toPrecision(4) + " \u00b5s";
  if (size < 1) return +(time * 1e3).toPrecision(4) + " ms";
  if (size < 180) return +time.toPrecision(size < 100 ? 4 : 5) + " s";
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]], sign = time < 0 ? "-" : "";
  let rest = Math.round(size);
  const parts = [];
  for (const [name, length] of units) {
    const count = Math.floor(rest / length);
    rest -= count * length;
    if (count) parts.push(`${count} ${name}`);
    if (parts.length === 2) break;
  }
  return sign + parts.join(" ");
}
