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

function showWhere(view) {
  const place = document.getElementById("where");
  if (!place) {
    return;
  }
  const names = view.shown.filter((each) => each.chosen < 0).map((each) => each.name),
    missing = names.length ? ` No result there of ${names.length > MOST_MISSING ? names.length + " others" : listed(names)}.` : "",
    stand = keys.some((_, key) => swept(key)) ? `The sliders stand at ${settingsText(view.state.at)}.` : "";
  const told = view.shown.length ? missing : " Nothing is chosen: tick a box above.";
  place.textContent = (stand + told).trim();
}

function showLegends(view) {
  const drawn = new Set(view.lines.map((each) => each.curve));
  document.querySelectorAll(".legend [data-curve]").forEach((item) => {
    item.hidden = !drawn.has(Number(item.dataset.curve));
  });
}

// of the whole job, of the training that a plan is for, or else of a million samples
function costCard(point) {
  const hourly = `${shown("usd_per_hour", point)} an hour`;
  if (document.getElementById("card-job") && value("job_cost_usd", point) !== null) {
    return { cost: shown("job_cost_usd", point), hourly: `${interval("job_cost_low_usd", "job_cost_high_usd", point)}; ${hourly}` };
  }
  if (value("usd_per_million_samples", point) === null) {
    return { cost: "not known", hourly: "no price with a source" };
  }
  if (data.trained_samples) {
    const [cost, low, high] = ["", "_low", "_high"].map((end) => written((value("usd_per_million_samples" + end, point) * data.trained_samples) / 1e6, "usd"));
    return { cost, hourly: `${low} to ${high}; ${hourly}` };
  }
  return { cost: shown("usd_per_million_samples", point), hourly: `a million samples; ${hourly}` };
}

// key figures: a card says what its description does, with what stands in columns in place of their names
function showCards(view) {
  const point = view.here,
    known = point >= 0,
    at = `at ${known ? pointSettings(point) : settingsText(view.state.at)}`,
    alone = keys.filter((_, key) => swept(key)).length < 2,
    where = known ? (alone ? "" : at + ": ") + value("placement", point) : at,
    cards = { name: view.name || "Nothing is chosen", where, ...(known ? costCard(point) : {}) };
  document.querySelectorAll("[id^=card-]").forEach((card) => {
    const { told = "" } = card.dataset,
      words = card.classList.contains("small") || card.id === "card-range",
      has = known && told && !(told.includes("{job_") && value("job_time_s", point) === null),
      otherwise = words ? (known ? "no whole job here" : "no result at these settings") : data.none;
    card.textContent = cards[card.id.slice("card-".length)] ?? (has ? told.replace(/\{(\w+)\}/g, (_, column) => shown(column, point)) : otherwise);
  });
}

function copyLink(note) {
  const byHand = () => {
    const attributes = { "aria-label": "Link to this view" },
      field = element("input", { type: "text", value: window.location.href, readOnly: true, attributes });
    note.replaceChildren(field);
    field.select();
  };
  const said = () => note.replaceChildren("Copied.");
  return navigator.clipboard ? navigator.clipboard.writeText(window.location.href).then(said, byHand) : byHand();
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
  inputs("#copy-link").forEach((button) => button.addEventListener("click", () => copyLink(document.getElementById("copied"))));
  inputs("#reset").forEach((button) => button.addEventListener("click", () => update((state) => Object.assign(state, initialState()))));
}
