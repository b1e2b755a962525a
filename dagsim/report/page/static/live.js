"use strict";
// Keeps a served page up to date: says how far its runs are, and fetches it again when more of them is done.
(() => {
  const place = document.getElementById("live"), ids = JSON.parse(place.dataset.runs), known = new Map();
  let source = null, drawnAt = null, fetching = false;

  function tell() {
    const states = [...known.values()];
    place.textContent = states.map(run => `${states.length > 1 ? run.id + ": " : ""}${run.state}, ${run.done.toLocaleString("en")}${run.total ? ` of ${run.total.toLocaleString("en")}` : ""} ${run.unit}`).join("; ");
    place.dataset.state = states.some(run => run.state === "running") ? "running" : states.every(run => run.state === "done") ? "done" : "stopped";
  }

  async function renew() {
    const mark = [...known.values()].map(run => `${run.done} ${run.state}`).join();
    if (drawnAt === null) drawnAt = place.dataset.waiting ? "" : mark;
    if (mark === drawnAt || fetching) return;
    fetching = true;
    try {
      const answer = await fetch(location.href);
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        if (place.dataset.waiting && page.getElementById("live").dataset.waiting === undefined) { location.reload(); return; }
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
      for (const run of JSON.parse(event.data).runs) known.set(run.id, run);
      tell();
      renew();
    };
    source.onerror = () => { place.textContent = "The server does not answer; trying again."; place.dataset.state = "stopped"; };
  }

  // A browser keeps few connections to one server: only the tab that is looked at has one.
  document.addEventListener("visibilitychange", () => { if (document.hidden) source.close(); else if (source.readyState === EventSource.CLOSED) listen(); });
  listen();
})();
