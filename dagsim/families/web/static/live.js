"use strict";
// Keeps a served page up to date: shows the progress of its runs, and fetches the page again when more is done.
(() => {
  const place = document.getElementById("live");
  const ids = JSON.parse(place.dataset.runs);
  const known = new Map();
  let source = null, drawnAt = null, fetching = false;

  function progressOf(run) {
    if (run.state === "gone") return "this run folder is gone: deleted or moved; the page shows what it last held";
    const total = run.total ? ` of ${run.total.toLocaleString("en")}` : "";
    return `${run.state}, ${run.done.toLocaleString("en")}${total} ${run.total || run.done !== 1 ? run.unit : run.unit.slice(0, -1)}`;
  }

  function showStates() {
    const states = [...known.values()];
    place.textContent = states
      .map(run => (ids.length > 1 ? `${run.id}: ` : "") + progressOf(run))
      .join("; ");
    if (states.some(run => run.state === "running")) place.dataset.state = "running";
    else place.dataset.state = states.every(run => run.state === "done") ? "done" : "stopped";
  }

  async function renew() {
    const states = [...known.values()];
    const mark = states.map(run => `${run.done} ${run.state}`).join();
    if (drawnAt === null) drawnAt = place.dataset.waiting ? "" : mark;
    if (mark === drawnAt || fetching || states.some(run => run.state === "gone")) return;
    fetching = true;
    try {
      const answer = await fetch(location.href);
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (place.dataset.waiting && page.getElementById("live").dataset.waiting === undefined) {
          location.reload();
          return;
        }
        for (const part of document.querySelectorAll("[data-part]")) {
          const renewed = page.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
          if (renewed) part.replaceWith(document.importNode(renewed, true));
        }
        const data = page.getElementById("data");
        if (data && data.textContent !== document.getElementById("data").textContent) {
          document.getElementById("data").textContent = data.textContent;
          await drawPage();
        }
        drawnAt = mark;
      }
    } finally { fetching = false; }
  }

  function listen() {
    source = new EventSource("/events?" + ids.map(id => "run=" + encodeURIComponent(id)).join("&"));
    source.onmessage = event => {
      const {runs, gone} = JSON.parse(event.data);
      for (const run of runs) known.set(run.id, run);
      for (const id of gone) known.set(id, {id, state: "gone"});
      showStates();
      renew();
    };
    source.onerror = () => {
      place.textContent = "The server does not answer; trying again.";
      place.dataset.state = "stopped";
    };
  }

  // A browser keeps few connections to one server: only the visible tab holds one.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else if (source.readyState === EventSource.CLOSED) listen();
  });
  listen();
})();
