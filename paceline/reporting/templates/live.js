// The page that asks while its reader changes a scenario. The report inside of it is drawn by the report's own script.

(function () {
"use strict";
const begins = JSON.parse(document.getElementById("begins").textContent);
const data = begins.needed;
{% for each in shared %}
{% include each %}
{% endfor %}

// what the page of a report does, once for each report that is shown
function drawReport(stop) {
{% for each in scripts %}
{% include each %}
{% endfor %}
}

const byId = (id) => document.getElementById(id);
const client = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const WORD = "live.scenario",
  OUTDATED = ["answer", "report", "planned"],
  LONGEST_LINK = 400000,
  QUIET_MS = 250,
  TYPED_MS = 400;
const asked = { text: begins.text, most: 64, strategies: [], clusters: [] };
const pending = new Map();
let running = null,
  again = false,
  later = 0,
  bounds = null,
  looks = [],  // of each curve what is simulated, by number of workers
  inTime = null,
  showing = null,
  typedAt = 0;

// -- asking --------------------------------------------------------------------------------

// while a slider moves, an answer is waited for before the next question: else none would ever be seen
function askSoon(wholly) {
  clearTimeout(later);
  if (wholly) {
    ask(true);
    return;
  }
  later = setTimeout(() => ask(true), QUIET_MS);
  if (running && !running.wholly) {
    again = true;
  } else {
    ask(false);
  }
}

async function ask(wholly) {
  if (running) {
    running.stop.abort();
  }
  const mine = { stop: new AbortController(), wholly, changes: [...pending], begun: performance.now() };
  running = mine;
  again = false;
  OUTDATED.forEach((id) => byId(id).classList.add("older"));
  document.documentElement.dataset.answered = "no";
  const body = { ...asked, changes: mine.changes, form: wholly, all_of_it: wholly };
  try {
    await asking("/ask", body, (event) => mine === running && SHOW[event.kind](event, mine), mine.stop.signal);
  } catch (error) {
    if (mine === running && error.name !== "AbortError") {
      tell(`No answer: ${error.message}. Is the page still served?`, true);
    }
  }
  if (mine === running) {
    running = null;
    if (again) {
      ask(false);
    } else if (wholly) {
      document.documentElement.dataset.answered = "yes";
    }
  }
}

// ask, and take each line of the answer as it comes
async function asking(where, body, take, signal) {
  const headers = { "content-type": "application/json", "x-client": client };
  const response = await fetch(where, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!response.ok && !(response.headers.get("content-type") || "").includes("json")) {
    throw new Error(await response.text());
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); ; part = await reader.read()) {
    rest += part.value || "";
    const lines = rest.split("\n");
    rest = lines.pop();
    lines.filter((each) => each).forEach((each) => take(JSON.parse(each)));
    if (part.done) {
      return;
    }
  }
}

function change(path, value, wholly) {
  pending.set(path, value);
  askSoon(wholly);
}

const SHOW = {
  scenario(event, mine) {
    mine.changes.filter(([path, value]) => pending.get(path) === value).forEach(([path]) => pending.delete(path));
    asked.text = event.text;
    if (document.activeElement !== byId("text")) {
      byId("text").value = event.text;
    }
    if (event.form) {
      showForm(event.form);
    }
    showProblems(event.problems);
    if (event.problems.length) {
      const [path, text] = event.problems[0];
      tell(`Not simulated: ${path ? `${path}: ` : ""}${text}`, true);
      return;
    }
    showSliders(event.sliders);
    showNotes(byId("left-out"), event.left_out);
    keepLink();
  },
  bounds(event) {
    bounds = event;
    const length = byId("plan-length");
    length.name = bounds.unit.replace("/s", "");
    length.labels[0].textContent = byId("possible-unit").textContent = length.name === "tokens" ? "Tokens" : "Samples";
    looks = [];
    if (!byId("answer").hasChildNodes()) {
      byId("answer").append(element("h1", { textContent: event.sentence }));
    }
    tell("Simulating …");
    drawPossible();
    performance.mark("bounds");
  },
  look(event) {
    looks[event.curve] = event.look ? [event.look] : [];
    drawPossible();
    if (event.curve === 0) {
      showAnswer(event);
      tell(event.look ? `First look: ${event.look.said}; simulating the rest …` : "");
      performance.mark("look");
    }
  },
  timeline(event) {
    inTime = event.figure ? event : null;
    byId("steps-title").textContent = event.sentence || "";
    byId("steps-note").textContent = event.note || "";
    drawInTime();
  },
  progress(event) {
    tell(`${event.final ? "All runs" : "First runs"}: ${event.done} of ${event.of} configurations simulated …`);
  },
  report(event) {
    looks = event.looks;
    drawPossible();
    showAnswer(event);
    showReport(event.html);
    showNotes(byId("left-out"), event.left_out);
    tell(event.final ? `Simulated: ${event.said}.` : `Simulated: ${event.said}; simulating the rest …`);
  },
  failed(event) {
    tell(event.text, true);
  },
};

function tell(text, wrong = false) {
  byId("state").textContent = text;
  byId("state").classList.toggle("problem", wrong);
}

function showNotes(place, texts) {
  place.hidden = !texts.length;
  place.replaceChildren(...texts.map((text) => element("li", { textContent: text })));
}

// the first screen, or why there is none
function showAnswer({ answer, failed }) {
  const place = byId("answer");
  place.classList.remove("older");
  if (answer) {
    place.innerHTML = answer;
  } else {
    place.replaceChildren(element("h1", { textContent: failed }));
  }
}

// -- the report ----------------------------------------------------------------------------

// figures that are there already stay where they are, and are only drawn anew: nothing jumps
function showReport(html) {
  const place = byId("report"),
    content = element("template", { innerHTML: html }).content;
  const open = new Set([...place.querySelectorAll("details[open]")].map(nameOfDetails));
  if (showing) {
    showing.abort();
  }
  showing = new AbortController();
  place.style.minHeight = `${place.offsetHeight}px`;
  const old = new Map([...place.querySelectorAll(".plot")].map((plot) => [plot.id, plot]));
  content.querySelectorAll(".plot").forEach((plot) => {
    const kept = old.get(plot.id);
    if (kept) {
      kept.style.cssText = plot.style.cssText;
      plot.replaceWith(kept);
      old.delete(plot.id);
    }
  });
  content.querySelectorAll("details").forEach((details) => {
    details.open = details.open || open.has(nameOfDetails(details));
  });
  place.replaceChildren(content);
  old.forEach((plot) => Plotly.purge(plot));
  place.classList.remove("older");
  drawReport(showing.signal);
  setTimeout(() => {
    place.style.minHeight = "";
  }, 1500);
}

function nameOfDetails(details) {
  return details.querySelector("summary").textContent;
}

// -- what is drawn at once -----------------------------------------------------------------

function drawPossible() {
  if (!bounds) {
    return;
  }
  const counts = ascending(new Set(bounds.curves.flatMap((each) => each.counts)), (count) => count);
  const key = { name: "Workers", kind: "setting", values: counts, texts: counts.map(String) };
  const lowest = (look) => Math.max(look.low, look.mean / 20);
  const traces = bounds.curves.flatMap(({ name, colour, band, counts: x, bounds: y }, index) => {
    const known = looks[index] || [],
      at = known.map((look) => look.count),
      means = known.map((look) => look.mean),
      [lows, highs] = [known.map(lowest), known.map((look) => look.high)],
      title = (n) => `<b>${plotText(name)}</b><br>${n} workers<br>`,
      most = x.map((n, i) => title(n) + (y[i] === null ? "no bound is known" : `at most ${written(y[i], "throughput")} ${bounds.unit}`)),
      told = known.map(({ count, mean, low, high, limit }) => `${title(count)}${written(mean, "throughput")} ${bounds.unit}<br>90% interval ${written(low, "throughput")} to ${written(high, "throughput")}<br>limited by ${plotText(limit)}`);
    return [
      scatterTrace({ mode: "lines", x, y, line: { color: colour, width: 2, dash: "dot" }, hovertext: most }),
      ...(at.length > 1 ? [scatterTrace({ mode: "lines", fill: "toself", fillcolor: band, line: { width: 0, color: band }, hoverinfo: "skip", x: [...at, ...at.slice().reverse()], y: [...highs, ...lows.reverse()] })] : []),
      scatterTrace({ mode: "lines+markers", name: plotText(name), x: at, y: means, line: { color: colour, width: 2.25 }, marker: { color: known.map((look) => (look.hollow ? PAPER : colour)), size: 9, line: { color: colour, width: 2 } }, hovertext: told, ...(at.length === 1 && { error_y: whiskers(means, lows, highs, { color: colour, thickness: 1.5, width: 6 }) }) }),
    ];
  });
  const seen = [...bounds.curves.flatMap((each) => each.bounds), ...looks.flatMap((known) => (known || []).flatMap((look) => [lowest(look), look.high]))];
  const place = byId("figure-possible");
  drawPlot("possible", {
    data: traces,
    layout: layoutOf({
      margin: keyMargin(key),
      xaxis: keyAxis(key, true, place.clientWidth),
      yaxis: logAxis(seen.filter((each) => each > 0)),
      shapes: [upright(bounds.count, { dash: "dash" })],
    }),
  });
  place.setAttribute("aria-label", `Throughput of 1 to ${counts[counts.length - 1]} workers. ${bounds.sentence}`);
  byId("possible-legend").replaceChildren(...(bounds.curves.length > 1 ? bounds.curves.map(({ name, colour }) => legendItem(colour, name)) : []));
}

function legendItem(colour, words) {
  const swatch = element("span", { className: "swatch" });
  swatch.style.background = colour;
  return element("li", {}, element("span", { className: "key" }, swatch, element("bdi", { textContent: words })));
}

function drawInTime() {
  const place = byId("figure-now");
  if (!inTime) {
    drawPlot("now", emptyFigure("No step to show."));
    byId("steps-legend").replaceChildren();
    return;
  }
  const { data: traces, layout } = inTime.figure;
  place.style.setProperty("--height", `${layout.height || 260}px`);
  drawPlot("now", inTime.figure);
  place.setAttribute("aria-label", inTime.sentence);
  const used = begins.kinds.filter(([kind]) => traces.some((trace) => trace.legendgroup === kind));
  byId("steps-legend").replaceChildren(...used.map(([, colour, label]) => legendItem(colour, label)));
  performance.mark("timeline");
}

// -- sliders -------------------------------------------------------------------------------

const sliders = [...document.querySelectorAll("#turning input")].map((input) => {
  const { key, unit, values } = input.dataset;
  return { input, key, unit, said: input.dataset.said, values: values.split(" ").map(Number), label: input.closest("label") };
});

function told({ input, label, unit, said }, number) {
  const words = written(number, "setting") + unit;
  label.querySelector("output").textContent = words;
  input.setAttribute("aria-valuetext", words + said);
}

// a slider stands at the value that is nearest to the scenario's
function showSliders(stand) {
  byId("most").value = String(asked.most);
  sliders.forEach((slider) => {
    const { input, key, values, label } = slider,
      path = Object.keys(stand).find((each) => each.endsWith(`.${key}`));
    label.hidden = path === undefined;
    if (path !== undefined && !pending.has(path)) {
      const away = (each) => Math.abs(Math.log(each / stand[path]));
      input.dataset.path = path;
      input.value = String(values.indexOf(ascending(values, away)[0]));
      told(slider, stand[path]);
    }
  });
}

sliders.forEach((slider) =>
  slider.input.addEventListener("input", () => {
    const chosen = slider.values[Number(slider.input.value)];
    told(slider, chosen);
    change(slider.input.dataset.path, `${chosen}${slider.unit}`, false);
  }),
);
byId("most").addEventListener("change", () => {
  asked.most = Number(byId("most").value);
  ask(true);
});

// -- the form ------------------------------------------------------------------------------

function fieldsOf(root) {
  return [...root.querySelectorAll("[data-field]")];
}

// of a form with other fields all is new; else it is only filled, and who types goes on
function showForm(html) {
  const place = byId("form"),
    fresh = element("template", { innerHTML: html }).content,
    active = document.activeElement,
    names = (root) => fieldsOf(root).map((field) => field.dataset.field);
  if (names(fresh).join() !== names(place).join()) {
    const open = place.hasChildNodes() ? [...place.querySelectorAll("details[open]")].map((each) => each.dataset.path) : ["strategy"],
      focused = place.contains(active) ? active.dataset.field : undefined;
    fresh.querySelectorAll("details").forEach((details) => {
      details.open = open.includes(details.dataset.path);
    });
    place.replaceChildren(fresh);
    fieldsOf(place).filter((field) => field.dataset.field === focused).forEach((field) => field.focus());
    return;
  }
  const [given, filled] = [fresh.querySelectorAll(".given"), fieldsOf(fresh)];
  place.querySelectorAll(".given").forEach((each, index) => {
    each.hidden = given[index].hidden;
  });
  fieldsOf(place).forEach((field, index) => {
    const { value, placeholder, options } = filled[index];
    if (options) {
      field.replaceChildren(...options);
    } else {
      field.placeholder = placeholder;
    }
    if (field !== active || options) {
      field.value = value;
    }
  });
}

byId("form").addEventListener("change", ({ target }) => change(target.dataset.field, target.value, true), true);

// a rule that is broken is shown at its field, as the command line says it; where there is no field, at the text
function showProblems(problems) {
  document.querySelectorAll("#form .problem").forEach((each) => each.remove());
  document.querySelectorAll("#form .wrong").forEach((each) => {
    each.classList.remove("wrong");
    each.querySelector("[data-field]").removeAttribute("aria-invalid");
  });
  const left = problems.filter(([path, text]) => {
    const field = path && document.querySelector(`#form [data-field="${CSS.escape(path)}"]`);
    if (!field) {
      return true;
    }
    const box = field.closest(".field");
    box.classList.add("wrong");
    field.setAttribute("aria-invalid", "true");
    box.append(element("p", { className: "problem", role: "alert", textContent: text }));
    for (let details = box.closest("details"); details; details = details.parentElement.closest("details")) {
      details.open = true;
    }
    return false;
  });
  showNotes(byId("problems"), left.map(([path, text]) => (path ? `${path}: ${text}` : text)));
  byId("text").setAttribute("aria-invalid", String(left.length > 0));
  byId("text-panel").open = byId("text-panel").open || left.length > 0;
}

byId("text").addEventListener("input", () => {
  clearTimeout(typedAt);
  typedAt = setTimeout(() => {
    asked.text = byId("text").value;
    pending.clear();
    ask(true);
  }, TYPED_MS);
});

document.querySelectorAll("[data-compared]").forEach((box) => {
  box.addEventListener("change", () => {
    const all = [...document.querySelectorAll(`[data-compared="${box.dataset.compared}"]`)];
    asked[box.dataset.compared] = all.filter((each) => each.checked).map((each) => each.value);
    ask(true);
  });
});

// -- links, and what is saved ---------------------------------------------------------------

async function packed(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

async function unpacked(word) {
  const bytes = Uint8Array.from(atob(word.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value;
    if (text.length > 2 * begins.most_bytes) {
      throw new Error("the link holds more than a scenario");
    }
  }
  return text;
}

function wordsOfAddress() {
  return new URLSearchParams(window.location.hash.replace(/^#/, ""));
}

function putAddress(words) {
  window.history.replaceState(null, "", "#" + words);
}

// the whole question stands in the address, so that a link, or loading the page again, asks it again
async function keepLink() {
  const word = await packed(JSON.stringify(asked)),
    words = wordsOfAddress();
  words.set(WORD, word);
  putAddress(words);
}

async function readLink() {
  const word = wordsOfAddress().get(WORD);
  if (!word || word.length > LONGEST_LINK) {
    return false;
  }
  try {
    const linked = JSON.parse(await unpacked(word));
    const texts = (value) => (Array.isArray(value) ? value.filter((each) => typeof each === "string").slice(0, 6) : []);
    if (typeof linked.text !== "string" || JSON.stringify(linked) === JSON.stringify(asked)) {
      return false;
    }
    Object.assign(asked, { text: linked.text, most: Number(linked.most) || 64, strategies: texts(linked.strategies), clusters: texts(linked.clusters) });
    document.querySelectorAll("[data-compared]").forEach((box) => {
      box.checked = asked[box.dataset.compared].includes(box.value);
    });
    return true;
  } catch {
    tell("The link's scenario cannot be read; this is the one that is served.");
    return false;
  }
}

function said(text) {
  byId("done-so").textContent = text;
}

byId("save-scenario").addEventListener("click", () => saveAs(begins.name.replace(/(\.toml)?$/, ".toml"), asked.text, "application/toml"));
byId("save-report").addEventListener("click", async () => {
  const show = {
    progress: ({ done, of }) => said(`Simulating what is left, then the report is saved: ${done} of ${of} …`),
    saved({ html }) {
      saveAs(begins.name.replace(/(\.toml)?$/, ".html"), html, "text/html");
      said("Saved the report.");
    },
    failed: ({ text }) => said(text),
  };
  said("Simulating what is left, then the report is saved …");
  try {
    await asking("/save", { ...asked, changes: [...pending] }, (event) => show[event.kind](event));
  } catch (error) {
    said(`Not saved: ${error.message}. Is it still being served?`);
  }
});
byId("link-here").addEventListener("click", async () => {
  await keepLink();
  copyAddress(byId("done-so"));
});

let planning = null;
// a plan's answer comes before the scenario's own
byId("plan").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (planning) {
    planning.abort();
  }
  const mine = (planning = new AbortController()),
    place = byId("planned"),
    goal = Object.fromEntries(new FormData(byId("plan"))),
    question = { ...asked, changes: [...pending] };
  const tellPlan = (text) => place.replaceChildren(element("p", { className: "state", role: "status", textContent: text }));
  const behind = (title, ...parts) => element("details", {}, element("summary", { textContent: title }), ...parts),
    command = (text) => behind("The same on the command line", element("pre", { textContent: text }));
  const show = {
    progress: ({ done, of }) => tellPlan(of ? `Planning: ${done} of about ${of} configurations …` : "Planning …"),
    planned(event) {
      const close = element("button", { type: "button", className: "plain", textContent: "Close" });
      close.addEventListener("click", () => {
        place.hidden = true;
      });
      place.innerHTML = event.answer;
      place.append(behind("Details", ...[...event.sentences, ...event.notes].map((textContent) => element("p", { textContent }))), command(event.command), close);
    },
    failed(event) {
      tellPlan(`No plan: ${event.text}`);
      place.append(...(event.command ? [command(event.command)] : []));
    },
  };
  place.hidden = false;
  place.classList.remove("older");
  tellPlan("Planning …");
  place.focus();
  byId("plan-stop").hidden = false;
  try {
    await asking("/plan", { question, goal }, (event) => mine === planning && show[event.kind](event), mine.signal);
  } catch (error) {
    if (mine === planning) {
      tellPlan(error.name === "AbortError" ? "Stopped." : `No plan: ${error.message}.`);
    }
  }
  if (mine === planning) {
    byId("plan-stop").hidden = true;
  }
});
byId("plan-stop").addEventListener("click", () => planning && planning.abort());

window.addEventListener("hashchange", async () => {
  if (await readLink()) {
    pending.clear();
    ask(true);
  }
});
followTheme(() => {
  drawPossible();
  drawInTime();
});
readLink().then(() => {
  byId("text").value = asked.text;
  ask(true);
});
})();
