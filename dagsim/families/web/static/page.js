"use strict";
// Unpacks the data of the page and joins charts and controls.
(async () => {
  const $ = id => document.getElementById(id);
  const failed = error => {
    $("told").textContent = `The charts cannot be drawn: ${error.message || error}. The tables are complete.`;
  };

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

  const DASHES = [[], [6, 3], [2, 2]];
  const look = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const grouped = value => value.toLocaleString("en");
  const short = value => value >= 1e4 ? +(value / 1000).toPrecision(3) + " k" : +value.toPrecision(3);
  let plots = [];

  // Only powers of ten get a label on a logarithmic axis.
  function decades(_, ticks) {
    return ticks.map(tick => {
      const power = Math.log10(tick);
      return Math.abs(power - Math.round(power)) < 1e-6 ? tick : null;
    });
  }

  // One chart in `place`. A series is [name, values] or, with a band, [name, values, low, high].
  function plot(place, title, label, x, series, options) {
    const {log = false, unit = "", fraction = false, counts = false, points = false} = options;
    const banded = series.flatMap((each, place) => each.length > 2 ? [place] : []);
    const known = values => Array.from(values, value => Number.isFinite(value) ? value : null);
    const box = document.createElement("div");
    box.className = "curve";
    place.append(box);

    const lines = {stroke: () => look("--line"), width: 1};
    const axis = {stroke: () => look("--ink"), grid: lines, ticks: lines};
    const tickText = tick => counts ? grouped(tick) : seconds(tick);
    const alongLog = {
      label, labelSize: 22, space: 45, filter: decades,
      grid: {...lines, filter: decades}, ticks: {...lines, filter: decades},
      values: (_, ticks) => ticks.map(tick => tick === null ? "" : short(tick)),
    };
    const alongLinear = {
      space: 90, ...(counts ? {label, labelSize: 22} : {incrs: STEPS}),
      values: (_, ticks) => ticks.map(tickText),
    };

    function valueOfX(value) {
      if (value == null) return "-";
      if (log) return value.toPrecision(4);
      return counts ? grouped(+value.toPrecision(6)) : seconds(value);
    }

    const colourOf = index => series[index][0] === "mean" ? look("--ink") : COLOURS[index % 6];
    const isPoint = values => Array.from(values).filter(Number.isFinite).length === 1;
    const drawnSeries = series.map(([name, values], index) => ({
      label: name, stroke: () => colourOf(index),
      width: banded.length && name !== "mean" && !points ? 1 : 1.8,
      dash: DASHES[Math.floor(index / 6) % 3], spanGaps: true, points: {show: points || isPoint(values), size: isPoint(values) ? 9 : 5},
      value: (_, value) => value == null ? "-" : grouped(+value.toPrecision(4)),
    }));
    const edge = {class: "edge", points: {show: false}};
    const bands = banded.map((place, count) => ({
      series: [series.length + 2 + 2 * count, series.length + 1 + 2 * count],
      fill: () => colourOf(place) + (banded.length > 2 ? "17" : "28"),
    }));
    const yRange = fraction ? {range: [0, 1.02]} : counts ? {} : {range: (_, low, high) => [0, (high || 1) * 1.06]};
    const width = place.clientWidth > 900 && !log ? place.clientWidth : box.clientWidth;
    const data = [
      x, ...series.map(([, values]) => known(values)),
      ...banded.flatMap(place => [known(series[place][2]), known(series[place][3])]),
    ];
    const drawn = new uPlot({
      title, width: Math.max(width, 200), height: points ? 340 : counts ? 280 : log ? 260 : 200,
      scales: {x: {time: false, distr: log ? 3 : 1, log: 10}, y: yRange},
      axes: [
        {...axis, ...(log ? alongLog : alongLinear)},
        {...axis, size: 64, label: unit, labelSize: 18, values: (_, ticks) => ticks.map(grouped)},
      ],
      series: [
        {label: label.replace(/ \(.*/, ""), value: (_, value) => valueOfX(value)},
        ...drawnSeries,
        ...banded.flatMap(() => [{...edge}, {...edge}]),
      ],
      bands,
      cursor: {drag: {x: true, y: false}},
    }, data, box);
    plots.push([drawn, box]);
    return drawn;
  }

  const markDrawn = () => { document.documentElement.dataset.drawn = performance.now().toFixed(0); };
  const done = () => requestAnimationFrame(() => requestAnimationFrame(markDrawn));
  const at = (views, series) => series.map(([name, ...places]) => [name, ...places.map(place => views[place])]);
  let gantt, dag, runs = [], chosen = 0;

  function showLearning(facts, views) {
    clear($("curves"));
    for (const curve of facts.learning) {
      const options = {unit: curve.unit, counts: true};
      plot($("curves"), curve.title, "samples", views[curve.x], at(views, curve.series), options);
    }
  }

  function clear(place) {
    place.replaceChildren();
    plots = plots.filter(([, box]) => box.isConnected);
  }

  function choose(place) {
    const run = runs[chosen = place];
    clear($("curves"));
    gantt.show(run);
    for (const curve of run.curves) {
      plot($("curves"), curve.title, "time", run.views[curve.x], at(run.views, curve.series), {unit: curve.unit});
    }
    document.querySelectorAll(".of-run").forEach(each => { each.hidden = each.dataset.run !== String(place); });
    if (dag) { $("dag-section").hidden = !run.graphs; dag.show(run); }
    $("search").value = "";
  }

  function showRuns(facts, views) {
    // Numbers stand for arrays, but for two keys that are plain numbers.
    const isPlace = (key, value) => typeof value === "number" && key !== "height" && key !== "of";
    const filled = facts => Object.fromEntries(
      Object.entries(facts).map(([key, value]) => [key, isPlace(key, value) ? views[value] : value]));
    const before = runs[chosen] && runs[chosen].name;
    runs = facts.runs.map(run => ({
      ...run, views, nodes: filled(run.nodes), jobs: filled(run.jobs), outages: filled(run.outages),
      bars: Object.fromEntries(
        Object.entries(run.bars).map(([key, value]) => [key, typeof value === "number" ? views[value] : value])),
      graphs: run.graphs && filled(run.graphs),
    }));
    clear($("distributions"));
    for (const figure of Object.values(facts.distributions)) {
      if (!figure.series.length) continue;
      const options = {log: true, unit: "share of jobs within", fraction: true};
      const title = figure.label.replace(/ \(.*/, "");
      plot($("distributions"), title, figure.label, views[figure.x], at(views, figure.series), options);
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

  const fitted = ([drawn, box]) => drawn.setSize({width: Math.max(box.clientWidth, 200), height: drawn.height});
  const redrawn = () => plots.forEach(([drawn]) => drawn.redraw());
  addEventListener("resize", () => plots.forEach(fitted));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawn);
  try { await drawPage(); } catch (error) { failed(error); throw error; }
})();
