"use strict";
// A sweep: curves along one axis, one per value of another, and a heat map of two axes.
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
    const x = axis.values || axis.labels.map((_, place) => place), by = along === this.compared ? null : this.compared;
    const series = (by === null ? [metric.name] : this.axes[by].labels).map((name, label) => {
      const points = x.map((_, place) => this.over(new Map([...this.fixed, [along, place], ...(by === null ? [] : [[by, label]])])));
      return [name, points.map(point => point[0]), points.map(point => point[1]), points.map(point => point[2])];
    });
    this.clear(this.$("curves"));
    if (x.length > 1) this.plot(this.$("curves"), `${metric.name} by ${axis.name}`, axis.name, x, series, {unit: metric.unit, counts: true, points: true, names: axis.values ? null : axis.labels});
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
        const made = cell("td", Number.isFinite(value) ? +value.toPrecision(4) >= 1e4 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(4)) : "-");
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

function fill(choice, names, chosen = 0) { choice.replaceChildren(...names.map((name, place) => new Option(name, place, place === chosen, place === chosen))); }
function cell(kind, text, scope) { const made = document.createElement(kind); made.textContent = text; if (scope) made.scope = scope; return made; }
// From pale yellow over green to dark blue: it darkens evenly, also for the colour-blind.
const RAMP = [[253, 244, 196], [173, 215, 174], [86, 170, 182], [38, 108, 160], [32, 44, 104]];
function shade(share) {
  const at = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1), first = Math.min(Math.floor(at), RAMP.length - 2);
  return RAMP[first].map((part, place) => Math.round(part + (RAMP[first + 1][place] - part) * (at - first)));
}
