// What a reader chooses with: native inputs, so that a keyboard and a screen reader work as everywhere.

function inputs(selector) {
  return [...document.querySelectorAll(`#controls ${selector}, #sliders ${selector}`)];
}

const MOST_MISSING = 2;

// fields that hold one value of the state, those that are there
const FIELDS = {
  "choose-x": { read: (state) => state.x, write: (state, text) => Object.assign(state, { x: Number(text) }) },
  "choose-focus": { read: (state) => state.focus, write: focusOn },
  "x-axis": axisField("xlog"),
  "y-axis": axisField("ylog"),
};

function axisField(name) {
  return { read: (state) => (state[name] ? "log" : "linear"), write: (state, text) => Object.assign(state, { [name]: text === "log" }) };
}

// a curve that has nothing at the sliders' values takes them to where it has
function focusOn(state, text) {
  state.focus = Number(text);
  if (pointAt(state.focus, state.at) < 0) {
    const last = pointsOf[state.focus][pointsOf[state.focus].length - 1];
    state.at = state.at.map((index, key) => (place(key, last) < 0 ? index : place(key, last)));
  }
}

// set every input as the state says
function showState(state) {
  inputs("[data-group]").forEach((box) => {
    box.checked = !state.off[box.dataset.group].has(Number(box.value));
  });
  inputs("[data-key]").forEach((slider) => {
    const key = Number(slider.dataset.key),
      words = keys[key].texts[state.at[key]];
    slider.value = String(state.at[key]);
    slider.setAttribute("aria-valuetext", words);
    document.getElementById("value-" + key).textContent = words;
    // what none of those shown has is no matter of them; what the one in detail has not does not move it
    const has = (curve) => pointsOf[curve].some((point) => place(key, point) >= 0);
    slider.closest("label").hidden = !ticked(state).some(({ curve }) => has(curve));
    slider.disabled = !has(state.focus);
  });
  Object.entries(FIELDS).forEach(([id, { read }]) =>
    inputs("#" + id).forEach((field) => {
      field.value = String(read(state));
    }),
  );
}

// what stands at the sliders, in a sentence: each part where all of its figures are known
const TOLD = [
  "the job takes {job_time_s} ({job_time_low_s} to {job_time_high_s})",
  "{job_cost_usd} for all of it",
  `{${RATE}} ${data.unit} ({${RATE_LOW}} to {${RATE_HIGH}})`,
  "MFU {mfu}",
  "efficiency {scaling_efficiency}",
  "step {step_mean_s}",
  "{usd_per_hour} an hour",
  "limit: {bottleneck_label}",
  "{standing}",
];

function showWhere(view) {
  const place = document.getElementById("where");
  if (!place) {
    return;
  }
  const known = (column) => data.columns[column] && value(column, view.here) !== null,
    parts = TOLD.filter((text) => view.here >= 0 && [...text.matchAll(/\{(\w+)\}/g)].every(([, column]) => known(column))),
    told = parts.map((text) => text.replace(/\{(\w+)\}/g, (_, column) => shown(column, view.here))).join(", "),
    names = view.shown.filter((each) => each.chosen < 0 && each.curve !== view.focus).map((each) => each.name),
    missing = names.length ? ` No result there of ${names.length > MOST_MISSING ? names.length + " others" : listed(names)}.` : "",
    who = view.shown.length ? `${view.name}, ${view.here < 0 ? settingsText(view.state.at) : pointSettings(view.here)}: ${told || "no result"}.` : "Nothing is chosen: tick a box above.";
  place.textContent = who + missing;
}

function showLegends(view) {
  const drawn = new Set(view.lines.map((each) => each.curve));
  document.querySelectorAll(".legend [data-curve]").forEach((item) => {
    item.hidden = !drawn.has(Number(item.dataset.curve));
  });
}

// pass on what is chosen: change(state) alters the state
function listen(update) {
  inputs("[data-group]").forEach((box) =>
    box.addEventListener("change", () => update(({ off }) => off[box.dataset.group][box.checked ? "delete" : "add"](Number(box.value)))),
  );
  inputs("[data-key]").forEach((slider) =>
    slider.addEventListener("input", () => update((state) => state.at.splice(Number(slider.dataset.key), 1, Number(slider.value)))),
  );
  Object.entries(FIELDS).forEach(([id, { write }]) =>
    inputs("#" + id).forEach((field) => field.addEventListener("change", () => update((state) => write(state, field.value)))),
  );
  inputs("#copy-link").forEach((button) => button.addEventListener("click", () => copyAddress(document.getElementById("copied"))));
  inputs("#reset").forEach((button) => button.addEventListener("click", () => update((state) => Object.assign(state, initialState()))));
}
