"use strict";
// The graph of one job over time: a row per task, a curve per edge, and the critical path in its own colour.
class Dag {
  static MOST = 80;
  constructor(place, told, list) { this.place = place; this.told = told; this.list = list; this.graphs = null; this.at = -1;
    new ResizeObserver(() => { if (this.at >= 0 && this.place.clientWidth !== this.wide) this.draw(); }).observe(place); }

  show(run) {
    this.run = run; this.graphs = run.graphs; this.at = -1;
    if (!this.graphs) return;
    this.first = []; this.firstEdge = [];
    let tasks = 0, edges = 0;
    for (let i = 0; i < this.graphs.job.length; i++) { this.first.push(tasks); this.firstEdge.push(edges); tasks += this.graphs.tasks[i]; edges += this.graphs.edge_count[i]; }
    this.list.replaceChildren(...[...this.graphs.job].slice(0, 200).map(job => { const option = document.createElement("option"); option.value = run.jobs.ids[job]; return option; }));
    this.choose(0);
  }

  // The graph of the job of that name, or the first that contains it; false where there is none.
  find(text) {
    const ids = [...this.graphs.job].map(job => this.run.jobs.ids[job].toLowerCase()), wanted = text.toLowerCase();
    let place = ids.indexOf(wanted);
    if (place < 0) place = ids.findIndex(id => id.includes(wanted));
    if (place >= 0) this.choose(place);
    return place >= 0;
  }

  ofJob(job) {
    const place = this.graphs ? this.graphs.job.indexOf(job) : -1;
    if (place >= 0) this.choose(place);
    return place >= 0;
  }

  choose(place) {
    this.at = place;
    const {tasks, ready, start, end, name, names, blocker} = this.graphs, from = this.first[place];
    this.tasks = Array.from({length: tasks[place]}, (_, i) => ({i, name: names[name[from + i]], ready: ready[from + i], start: start[from + i], end: end[from + i], blocker: blocker[from + i], critical: false}));
    const ran = this.tasks.filter(task => task.end >= 0);
    this.path = [];
    if (ran.length) for (let task = ran.reduce((a, b) => b.end > a.end ? b : a); task; task = this.tasks[task.blocker]) { task.critical = true; this.path.unshift(task); }
    this.draw();
    this.tell();
  }

  tell() {
    const path = this.path, id = this.run.jobs.ids[this.graphs.job[this.at]];
    const waited = path.reduce((sum, task) => sum + task.start - task.ready, 0), ran = path.reduce((sum, task) => sum + task.end - task.start, 0);
    const names = path.map(task => task.name), shown = names.length > 12 ? [...names.slice(0, 6), "\u2026", ...names.slice(-5)] : names;
    this.told.textContent = path.length ? `${id}: ${this.tasks.length} tasks in ${seconds(path[path.length - 1].end)}. Critical path: ${shown.join(" \u2192 ")}: ${seconds(ran)} running and ${seconds(waited)} waiting.` : `${id}: none of its ${this.tasks.length} tasks ran.`;
    if (this.hidden) this.told.textContent += ` ${this.hidden} tasks off the critical path are not drawn.`;
  }

  draw() {
    const chosen = this.tasks.filter(task => task.critical).slice(0, Dag.MOST);
    for (const task of this.tasks) if (!task.critical && chosen.length < Dag.MOST) chosen.push(task);
    this.hidden = this.tasks.length - chosen.length;
    chosen.sort((a, b) => (a.start < 0) - (b.start < 0) || a.start - b.start || a.i - b.i);
    const wide = this.wide = Math.max(this.place.clientWidth, 280), left = Math.min(wide * 0.28, 170, 22 + 7.4 * Math.max(...chosen.map(task => task.name.length))), row = chosen.length > 40 ? 15 : 24, high = chosen.length * row + 26;
    const most = Math.max(...chosen.map(task => task.end), 1e-9), x = time => left + Math.max(time, 0) / most * (wide - left - 14);
    const svg = shape("svg", {viewBox: `0 0 ${wide} ${high}`, width: wide, height: high, role: "img", "aria-labelledby": "dag-told"});
    const step = roundStep(most / Math.max((wide - left) / 85, 1));
    for (let at = 0; at <= most; at += step) {
      svg.append(shape("line", {x1: x(at), x2: x(at), y1: 0, y2: high - 22, class: "grid"}));
      if (x(at) < wide - 24) svg.append(shape("text", {x: x(at), y: high - 7, class: "tick"}, seconds(at)));
    }
    const rows = new Map(chosen.map((task, place) => [task.i, place])), middle = task => rows.get(task.i) * row + row / 2;
    const edges = this.graphs.edges, from = this.firstEdge[this.at], links = [];
    for (let e = from; e < from + this.graphs.edge_count[this.at]; e++) {
      const parent = this.tasks[edges[2 * e]], child = this.tasks[edges[2 * e + 1]];
      if (!rows.has(parent.i) || !rows.has(child.i) || parent.end < 0 || child.start < 0) continue;
      const critical = parent.critical && child.critical && child.blocker === parent.i;
      links.push([critical, `M${x(parent.end)} ${middle(parent)}C${x(parent.end) + 14} ${middle(parent)} ${x(child.start) - 14} ${middle(child)} ${x(child.start)} ${middle(child)}`]);
    }
    links.sort((a, b) => a[0] - b[0]);
    for (const [critical, d] of links) if (!critical) svg.append(shape("path", {d, class: "edge"}));
    for (const task of chosen) {
      const y = middle(task), kind = task.critical ? " critical" : "", thick = row * 0.58;
      const label = shape("text", {x: left - 8, y: y + 4, class: "task" + kind}, short(task.name, left < 120 ? 12 : 22));
      if (row >= 20 || task.critical) svg.append(label);
      if (task.start < 0) continue;
      if (task.start > task.ready && task.ready >= 0) svg.append(shape("rect", {x: x(task.ready), y: y - 1.5, width: x(task.start) - x(task.ready), height: 3, class: "waits" + kind}));
      const bar = shape("rect", {x: x(task.start), y: y - thick / 2, width: Math.max(x(task.end) - x(task.start), 1.5), height: thick, rx: 3, class: "runs" + kind});
      bar.append(shape("title", {}, `${task.name}: could start at ${seconds(task.ready)}, waited ${seconds(task.start - task.ready)}, ran ${seconds(task.end - task.start)}`));
      svg.append(bar);
    }
    for (const [critical, d] of links) if (critical) svg.append(shape("path", {d, class: "edge critical"}));
    this.place.replaceChildren(svg);
  }
}

function short(text, most) { return text.length > most ? text.slice(0, most - 1) + "\u2026" : text; }
function shape(kind, facts, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(facts)) made.setAttribute(name, typeof value === "number" ? +value.toFixed(2) : value);
  if (text !== undefined) made.textContent = text;
  return made;
}
