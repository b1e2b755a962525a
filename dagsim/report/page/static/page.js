"use strict";
// Unpacks the data of the page and joins charts and controls.
(async () => {
  const $ = id => document.getElementById(id);
  const failed = error => { $("told").textContent = `The charts cannot be drawn: ${error.message || error}. The tables are complete.`; };

  async function unpack() {
    const packed = Uint8Array.from(atob($("data").textContent), sign => sign.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    const bytes = await new Response(stream).arrayBuffer();
    const length = new DataView(bytes).getUint32(0, true), start = 4 + length;
    const {facts, arrays} = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
    const kinds = {Float64Array, Float32Array, Int32Array, Uint8Array};
    const views = arrays.map(([kind, offset, count]) => new kinds[kind](bytes, start + offset, count));
    return {facts, views};
  }

  const COLOURS = ["#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7"], DASHES = [[], [6, 3], [2, 2]];
  const look = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let plots = [];

  function plot(place, title, label, x, series, {log = false, unit = "", fraction = false, counts = false, points = false, names = null}) {
    const banded = series.flatMap((each, place) => each.length > 2 ? [place] : []), known = values => Array.from(values, value => Number.isFinite(value) ? value : null);
    const box = document.createElement("div");
    box.className = "curve";
    place.append(box);
    const short = value => value >= 1e4 ? +(value / 1000).toPrecision(3) + " k" : +value.toPrecision(3);
    const decades = (_, ticks) => ticks.map(tick => Math.abs(Math.log10(tick) - Math.round(Math.log10(tick))) < 1e-6 ? tick : null);
    const lines = {stroke: () => look("--line"), width: 1}, axis = {stroke: () => look("--ink"), grid: lines, ticks: lines};
    const along = log ? {label, labelSize: 22, space: 45, filter: decades, grid: {...lines, filter: decades}, ticks: {...lines, filter: decades}, values: (_, ticks) => ticks.map(tick => tick === null ? "" : short(tick))}
      : {space: 90, ...(counts ? {label, labelSize: 22} : {incrs: STEPS}), ...(names ? {incrs: [1]} : {}), values: (_, ticks) => ticks.map(tick => names ? names[tick] || "" : counts ? tick.toLocaleString("en") : seconds(tick))};
    const drawn = new uPlot({
      title, width: Math.max(place.clientWidth > 900 && !log ? place.clientWidth : box.clientWidth, 200), height: points ? 340 : counts ? 280 : log ? 260 : 200,
      scales: {x: {time: false, distr: log ? 3 : 1, log: 10}, y: fraction ? {range: [0, 1.02]} : counts ? {} : {range: (_, low, high) => [0, (high || 1) * 1.06]}},
      axes: [{...axis, ...along},
        {...axis, size: 64, label: unit, labelSize: 18, values: (_, ticks) => ticks.map(tick => tick.toLocaleString("en"))}],
      series: [{label: label.replace(/ \(.*/, ""), value: (_, value) => value == null ? "-" : log ? value.toPrecision(4) : names ? names[Math.round(value)] : counts ? (+value.toPrecision(6)).toLocaleString("en") : seconds(value)},
        ...series.map(([name], index) => ({label: name, stroke: () => name === "mean" ? look("--ink") : COLOURS[index % 6], width: banded.length && name !== "mean" && !points ? 1 : 1.8, dash: DASHES[Math.floor(index / 6) % 3], spanGaps: true, points: {show: points}, value: (_, value) => value == null ? "-" : (+value.toPrecision(4)).toLocaleString("en")})),
        ...banded.flatMap(() => [{class: "edge", points: {show: false}}, {class: "edge", points: {show: false}}])],
      bands: banded.map((place, count) => ({series: [series.length + 2 + 2 * count, series.length + 1 + 2 * count], fill: () => (series[place][0] === "mean" ? look("--ink") : COLOURS[place % 6]) + (banded.length > 2 ? "17" : "28")})),
      cursor: {drag: {x: true, y: false}},
    }, [x, ...series.map(([, values]) => known(values)), ...banded.flatMap(place => [known(series[place][2]), known(series[place][3])])], box);
    plots.push([drawn, box]);
    return drawn;
  }

  const done = () => requestAnimationFrame(() => requestAnimationFrame(() => { document.documentElement.dataset.drawn = performance.now().toFixed(0); }));
  const at = (views, series) => series.map(([name, ...places]) => [name, ...places.map(place => views[place])]);
  let gantt, dag, runs = [], chosen = 0;

  function showLearning(facts, views) {
    clear($("curves"));
    for (const curve of facts.learning) plot($("curves"), curve.title, "samples", views[curve.x], at(views, curve.series), {unit: curve.unit, counts: true});
  }

  function clear(place) {
    place.replaceChildren();
    plots = plots.filter(([, box]) => box.isConnected);
  }

  function choose(place) {
    const run = runs[chosen = place];
    clear($("curves"));
    gantt.show(run);
    for (const curve of run.curves) plot($("curves"), curve.title, "time", run.views[curve.x], at(run.views, curve.series), {unit: curve.unit});
    document.querySelectorAll(".of-run").forEach(each => { each.hidden = each.dataset.run !== String(place); });
    if (dag) { $("dag-section").hidden = !run.graphs; dag.show(run); }
    $("search").value = "";
  }

  function showRuns(facts, views) {
    const filled = value => Object.fromEntries(Object.entries(value).map(([key, each]) => [key, typeof each === "number" && key !== "height" && key !== "of" ? views[each] : each]));
    const before = runs[chosen] && runs[chosen].name;
    runs = facts.runs.map(run => ({...run, views, nodes: filled(run.nodes), jobs: filled(run.jobs), outages: filled(run.outages), bars: Object.fromEntries(Object.entries(run.bars).map(([key, each]) => [key, typeof each === "number" ? views[each] : each])), graphs: run.graphs && filled(run.graphs)}));
    clear($("distributions"));
    for (const figure of Object.values(facts.distributions)) {
      if (figure.series.length) plot($("distributions"), figure.label.replace(/ \(.*/, ""), figure.label, views[figure.x], at(views, figure.series), {log: true, unit: "share of jobs within", fraction: true});
    }
    if (!gantt) prepare();
    const place = Math.max(runs.findIndex(run => run.name === before), 0);
    $("run").replaceChildren(...runs.map((run, number) => new Option(run.name, number, number === place, number === place)));
    choose(place);
  }

  function prepare() {
    gantt = new Gantt($("gantt"), $("told"), $("legend"));
    dag = $("dag") && new Dag($("dag"), $("dag-told"), $("dag-jobs"));
    function showGraph() {
      const text = $("dag-job").value.trim();
      if (text && !dag.find(text)) $("dag-told").textContent = `No job with a graph is called ${text}.`;
    }
    if (dag) {
      $("dag-show").addEventListener("click", showGraph);
      $("dag-job").addEventListener("change", showGraph);
      gantt.chosen = job => dag.ofJob(job);
    }
    $("run").addEventListener("change", e => choose(+e.target.value));
    $("colour").addEventListener("change", e => { gantt.colourBy = e.target.value; gantt.draw(); });
    $("search").addEventListener("input", e => {
      const count = gantt.search(e.target.value.trim());
      $("told").textContent = e.target.value.trim() ? `${count.toLocaleString("en")} ${count === 1 ? "job" : "jobs"} found` : "\u00a0";
    });
    $("search").addEventListener("keydown", e => { if (e.key === "Enter") gantt.showFound(); });
    $("zoom-to").addEventListener("click", () => gantt.showFound());
    $("zoom-in").addEventListener("click", () => gantt.zoom(0.5));
    $("zoom-out").addEventListener("click", () => gantt.zoom(2));
    $("reset").addEventListener("click", () => gantt.reset());
  }

  // Draws what the page holds; a live page calls it again with what is new.
  globalThis.drawPage = async () => {
    const {facts, views} = await unpack();
    if (facts.sweep) new SweepCharts(facts.sweep, views, plot, clear);
    else if (facts.learning) showLearning(facts, views);
    else if (facts.runs) showRuns(facts, views);
    done();
  };

  addEventListener("resize", () => plots.forEach(([drawn, box]) => drawn.setSize({width: Math.max(box.clientWidth, 200), height: drawn.height})));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach(([drawn]) => drawn.redraw()));
  try { await drawPage(); } catch (error) { failed(error); throw error; }
})();
