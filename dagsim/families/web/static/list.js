"use strict";
// The list of run folders: sorted, filtered and chosen from, and kept up to date by the server.
(() => {
  const $ = id => document.getElementById(id), runs = new Map(), rows = new Map(), chosen = new Set();
  let sortBy = "created", downward = true, source = null;
  const share = run => run.total ? run.done / run.total : 0;
  const KEYS = {
    id: run => run.id, workload: run => run.workload, policies: run => run.policies.join(" "),
    state: run => run.state, progress: share, result: run => run.result, created: run => run.created,
  };

  function cell(row, text, kind = "td") {
    const element = document.createElement(kind);
    element.textContent = text;
    row.append(element);
    return element;
  }

  function drawRow(run) {
    const [row, box, link, bar] = ["tr", "input", "a", "progress"].map(kind => document.createElement(kind));
    box.type = "checkbox"; box.checked = chosen.has(run.id); box.setAttribute("aria-label", `Choose ${run.id}`);
    box.addEventListener("change", () => { if (box.checked) chosen.add(run.id); else chosen.delete(run.id); count(); });
    cell(row, "").append(box);
    link.href = "/runs/" + run.id.split("/").map(encodeURIComponent).join("/"); link.textContent = run.id;
    const name = cell(row, "", "th");
    name.scope = "row";
    name.append(run.state === "unreadable" ? run.id : link);
    const state = cell(row, ""), badge = document.createElement("span");
    badge.className = "state"; badge.dataset.state = run.state; badge.textContent = run.state; badge.title = run.note;
    state.append(badge);
    bar.max = 1; bar.value = share(run); bar.setAttribute("aria-label", `Progress of ${run.id}`);
    const progress = cell(row, "");
    if (run.total && run.state !== "done") progress.append(bar);
    progress.append(` ${run.done.toLocaleString("en")}${run.total ? " / " + run.total.toLocaleString("en") : ""} ${run.total || run.done !== 1 ? run.unit : run.unit.slice(0, -1)}`);
    cell(row, run.state === "unreadable" || run.state === "failed" ? run.note : run.result).className = "wraps";
    cell(row, run.workload);
    const many = run.policies.length > 4;
    const names = run.policies.slice(0, many ? 3 : 4).join(", ") + (many ? ` and ${run.policies.length - 3} more` : "");
    const policies = cell(row, run.unit === "cells" ? `${run.policies.length} points` : names);
    policies.title = run.policies.slice(0, 60).join(", "); policies.className = "wraps";
    cell(row, run.created.slice(0, 16).replace("T", " "));
    return row;
  }

  function shown(run) {
    const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean), state = $("of-state").value;
    const text = [run.id, run.command, run.workload, run.policies.join(" "), run.state].join(" ").toLowerCase();
    return (!state || run.state === state) && words.every(word => text.includes(word));
  }

  function draw() {
    const key = KEYS[sortBy];
    const compare = (a, b) => key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : a.id < b.id ? -1 : 1;
    const order = [...runs.values()].filter(shown).sort((a, b) => compare(a, b) * (downward ? -1 : 1));
    const held = document.activeElement && document.activeElement.closest("tbody tr") ? document.activeElement : null;
    $("rows").replaceChildren(...order.map(run => rows.get(run.id)));
    if (held && held.isConnected) held.focus();
    $("empty").hidden = order.length > 0;
    $("empty").textContent = runs.size ? "No run matches." : "There is no run folder yet.";
    document.querySelectorAll("thead button").forEach(button => {
      const mine = button.dataset.key === sortBy;
      button.parentElement.setAttribute("aria-sort", mine ? downward ? "descending" : "ascending" : "none");
    });
    const running = order.filter(run => run.state === "running").length, dead = order.filter(run => run.state === "dead").length;
    const total = `${order.length.toLocaleString("en")} ${order.length === 1 ? "run" : "runs"}`;
    $("count").textContent = total + (running ? `, ${running} running` : "") + (dead ? `, ${dead} dead` : "");
    count();
  }

  function count() {
    for (const id of chosen) if (!runs.has(id)) chosen.delete(id);
    $("compare").disabled = chosen.size < 1;
    $("compare").textContent = chosen.size > 1 ? `Compare ${chosen.size} runs` : "Show chosen run";
  }

  function take({runs: changed, gone}) {
    for (const id of gone) { runs.delete(id); rows.delete(id); }
    for (const run of changed) { runs.set(run.id, run); rows.set(run.id, drawRow(run)); }
    draw();
    document.documentElement.dataset.drawn = performance.now().toFixed(0);
  }

  function listen() {
    source = new EventSource("/events");
    source.onmessage = event => { $("lost").hidden = true; take(JSON.parse(event.data)); };
    source.onerror = () => { $("lost").hidden = false; };
  }

  document.querySelectorAll("thead button").forEach(button => button.addEventListener("click", () => {
    downward = button.dataset.key === sortBy ? !downward : button.dataset.key === "created";
    sortBy = button.dataset.key;
    draw();
  }));
  $("filter").addEventListener("input", draw);
  $("of-state").addEventListener("change", draw);
  $("compare").addEventListener("click", () => {
    const ids = [...chosen];
    if (ids.length > 1) location.href = "/compare?" + ids.map(id => "run=" + encodeURIComponent(id)).join("&");
    else location.href = "/runs/" + ids[0].split("/").map(encodeURIComponent).join("/");
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else if (source.readyState === EventSource.CLOSED) listen();
  });
  take({runs: JSON.parse($("first").textContent), gone: []});
  listen();
})();
