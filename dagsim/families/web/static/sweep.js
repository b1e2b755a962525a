"use strict";
// A sweep: curves along an axis of numbers or rows along an axis of names, one per value of another, and a heat map.
class SweepCharts {
  constructor(facts, views, plot, clear) {
    const $ = id => document.getElementById(id);
    this.$ = $; this.axes = facts.axes; this.plot = plot; this.clear = clear;
    this.metrics = facts.metrics.map(metric => ({...metric, mean: views[metric.mean], low: views[metric.low], high: views[metric.high]}));
    const several = this.axes.map((axis, place) => place).filter(place => this.axes[place].labels.length > 1), all = several.length ? several : [0];
    const numeric = all.filter(place => this.axes[place].values);
    this.alongs = all.filter(place => place !== facts.compared || all.length === 1);
    this.compared = facts.compared;
    fill($("metric"), this.metrics.map(metric => metric.unit ? `${metric.name} (${metric.unit})` : metric.name));
    fill($("along"), this.alongs.map(place => this.axes[place].name), Math.max(this.alongs.indexOf(numeric.find(place => this.alongs.includes(place))), 0));
    fill($("down"), all.map(place => this.axes[place].name), Math.max(all.indexOf(facts.compared), 0));
    fill($("across"), all.map(place => this.axes[place].name), Math.max(all.findIndex(place => place !== facts.compared), 0));
    this.all = all;
    this.fixed = new Map();
    $("heat-section").hidden = all.length < 2;
    for (const id of ["metric", "along", "down", "across"]) $(id).onchange = () => this.draw();
    this.draw();
  }

  // The mean, lowest and highest over all points of the grid that have these labels.
  over(wanted) {
    const metric = this.metrics[+this.$("metric").value], found = {mean: [], low: [], high: []};
    const walk = (axis, place) => {
      if (axis === this.axes.length) { if (Number.isFinite(metric.mean[place])) for (const key of Object.keys(found)) found[key].push(metric[key][place]); return; }
      const count = this.axes[axis].labels.length;
      for (let label = 0; label < count; label++) if (!wanted.has(axis) || wanted.get(axis) === label) walk(axis + 1, place * count + label);
    };
    walk(0, 0);
    if (!found.mean.length) return [NaN, NaN, NaN];
    return [found.mean.reduce((a, b) => a + b) / found.mean.length, Math.min(...found.low), Math.max(...found.high)];
  }

  draw() { this.drawFixed(); this.drawCurves(); this.drawHeat(); }

  // A choice of one label, or all, for every axis that is neither along nor compared.
  drawFixed() {
    const along = this.alongs[+this.$("along").value], others = this.all.filter(place => place !== along && place !== this.compared), place = this.$("fixed");
    for (const axis of this.fixed.keys()) if (!others.includes(axis)) this.fixed.delete(axis);
    if ([...place.querySelectorAll("select")].map(each => +each.dataset.axis).join() === others.join()) return;
    place.replaceChildren(...others.map(axis => {
      const label = document.createElement("label"), choice = document.createElement("select");
      choice.dataset.axis = axis;
      fill(choice, ["all", ...this.axes[axis].labels]);
      choice.onchange = () => { if (+choice.value) this.fixed.set(axis, +choice.value - 1); else this.fixed.delete(axis); this.draw(); };
      label.append(this.axes[axis].name + " ", choice);
      return label;
    }));
  }

  drawCurves() {
    const along = this.alongs[+this.$("along").value], axis = this.axes[along], metric = this.metrics[+this.$("metric").value];
    const x = axis.values || axis.labels, by = along === this.compared ? null : this.compared;
    const series = (by === null ? [metric.name] : this.axes[by].labels).map((name, label) => {
      const points = x.map((_, place) => this.over(new Map([...this.fixed, [along, place], ...(by === null ? [] : [[by, label]])])));
      return [name, points.map(point => point[0]), points.map(point => point[1]), points.map(point => point[2])];
    });
    this.clear(this.$("curves"));
    if (!axis.values) drawRows(this.$("curves"), `${metric.name} by ${axis.name}`, metric.unit, axis.labels, series);
    else if (x.length > 1) this.plot(this.$("curves"), `${metric.name} by ${axis.name}`, axis.name, x, series, {unit: metric.unit, counts: true, points: true});
  }

  drawHeat() {
    const $ = this.$, down = this.all[+$("down").value], across = this.all[+$("across").value], metric = this.metrics[+$("metric").value];
    const rows = this.axes[down].labels, heads = this.axes[across].labels;
    const values = rows.map((_, row) => heads.map((_, column) => this.over(new Map([...this.fixed, [down, row], [across, column]]))[0]));
    const known = values.flat().filter(Number.isFinite), low = Math.min(...known), high = Math.max(...known);
    $("heat-told").textContent = `${metric.name}${metric.unit ? ` (${metric.unit})` : ""}: ${this.axes[down].name} down, ${this.axes[across].name} across`;
    const head = document.createElement("tr");
    for (const text of ["", ...heads]) head.append(cell("th", text, "col"));
    $("heat-heads").replaceChildren(head);
    $("heat-rows").replaceChildren(...rows.map((name, row) => {
      const line = document.createElement("tr");
      line.append(cell("th", name, "row"));
      for (const value of values[row]) {
        const made = cell("td", Number.isFinite(value) ? spelt(value) : "-");
        if (Number.isFinite(value)) {
          const colour = shade(high > low ? (value - low) / (high - low) : 0.5);
          made.style.backgroundColor = `rgb(${colour.join(",")})`;
          made.style.color = inkOn(colour);
        }
        line.append(made);
      }
      return line;
    }));
  }
}

// One row per name, as names have no order: in each row a dot per series, on a line from its lowest to its highest value.
const ROW = {label: 18, mark: 13, space: 9}, LONGEST_LABEL = 44;
function drawRows(place, title, unit, labels, series) {
  const known = series.flatMap(each => each.slice(1).flat()).filter(Number.isFinite);
  const box = place.appendChild(made("figure", {class: "drawing rows"}, "", HTML));
  box.append(made("figcaption", {}, title, HTML));
  if (!known.length) { box.append(made("p", {class: "note"}, "No cell of this chart is finished.", HTML)); return; }
  const [ticks, at] = nice(Math.min(...known), Math.max(...known)), each = ROW.label + ROW.mark * series.length + ROW.space;
  const height = each * labels.length, x = value => `${at(value).toFixed(2)}%`;
  const svg = made("svg", {role: "img", "aria-label": title, width: "100%", height: height + 40});
  for (const tick of ticks) {
    svg.append(made("line", {x1: x(tick), x2: x(tick), y1: 0, y2: height, class: "grid"}));
    svg.append(made("text", {x: x(tick), y: height + 15, class: "tick"}, spelt(tick)));
  }
  svg.append(made("text", {x: 0, y: height + 34, class: "axis"}, unit));
  labels.forEach((label, row) => {
    const one = series.length === 1 && Number.isFinite(series[0][1][row]) ? `: ${spelt(series[0][1][row])}` : "";
    const text = svg.appendChild(made("text", {x: 0, y: each * row + 14}, (label.length > LONGEST_LABEL ? label.slice(0, LONGEST_LABEL - 1) + "\u2026" : label) + one));
    text.append(made("title", {}, label));
    series.forEach(([name, mean, low, high], place) => {
      if (!Number.isFinite(mean[row])) return;
      const y = each * row + ROW.label + ROW.mark * (place + 0.5), ink = COLOURS[place % COLOURS.length];
      const mark = made("g", {});
      mark.append(made("title", {}, `${label}${series.length > 1 ? `, ${name}` : ""}: ${spelt(mean[row])} (${spelt(low[row])} to ${spelt(high[row])})`));
      mark.append(made("line", {x1: x(low[row]), x2: x(high[row]), y1: y, y2: y, stroke: ink, class: "span"}));
      mark.append(made("circle", {cx: x(mean[row]), cy: y, r: 5, fill: ink}));
      svg.append(mark);
    });
  });
  box.append(svg);
  if (series.length < 2) return;
  const legend = box.appendChild(made("p", {class: "note"}, "From top to bottom in each row:", HTML));
  series.forEach(([name], place) => {
    const swatch = made("span", {class: "swatch"}, "", HTML);
    swatch.style.backgroundColor = COLOURS[place % COLOURS.length];
    legend.append(" ", swatch, name);
  });
}

// Round ticks that enclose the values, and the position of a value in percent of the width.
function nice(low, high) {
  const rough = (high - low || Math.abs(high) || 1) / 4, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(each => each >= rough * 0.999);
  const first = Math.floor(low / step + 1e-9), last = Math.max(Math.ceil(high / step - 1e-9), first + 1);
  const ticks = Array.from({length: last - first + 1}, (_, place) => step * (first + place));
  return [ticks, value => 3 + 91 * (value - ticks[0]) / (ticks[ticks.length - 1] - ticks[0])];
}

const HTML = "http://www.w3.org/1999/xhtml", SVG = "http://www.w3.org/2000/svg";
function made(kind, attributes, text = "", space = SVG) {
  const element = document.createElementNS(space, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text) element.textContent = text;
  return element;
}
function spelt(value) { return Math.abs(value) >= 1e4 ? Math.round(value).toLocaleString("en") : (+value.toPrecision(4)).toLocaleString("en"); }
function fill(choice, names, chosen = 0) { choice.replaceChildren(...names.map((name, place) => new Option(name, place, place === chosen, place === chosen))); }
function cell(kind, text, scope) { const made = document.createElement(kind); made.textContent = text; if (scope) made.scope = scope; return made; }
// From pale yellow over green to dark blue: it darkens evenly, also for the colour-blind.
const RAMP = [[253, 244, 196], [173, 215, 174], [86, 170, 182], [38, 108, 160], [32, 44, 104]];
function shade(share) {
  const at = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1), first = Math.min(Math.floor(at), RAMP.length - 2);
  return RAMP[first].map((part, place) => Math.round(part + (RAMP[first + 1][place] - part) * (at - first)));
}
