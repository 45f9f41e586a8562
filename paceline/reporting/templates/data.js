// The embedded points, and which of them a choice shows.

const data = JSON.parse(document.getElementById("points").textContent);
// columns of the throughput, and of the cost, of samples or tokens
const [RATE, RATE_LOW, RATE_HIGH] = data.rate,
  [COST, COST_LOW, COST_HIGH] = data.cost.columns;
const { keys, groups, curves } = data;
const pointsOf = curves.map(() => []);
data.curve.forEach((curve, point) => pointsOf[curve].push(point));

function value(column, point) {
  const { texts, values } = data.columns[column],
    held = values[point];
  if (!texts) {
    return held;
  }
  return Array.isArray(held) ? held.map((index) => texts[index]).join(" ") : texts[held];
}

// the same as a reader sees it
function shown(column, point) {
  return written(value(column, point), data.columns[column].kind);
}

function interval(low, high, point) {
  return `${shown(low, point)} to ${shown(high, point)}`;
}

function nameOf(point) {
  return curves[data.curve[point]].name;
}

function scaling(curve) {
  const index = groups.findIndex((each) => each.id === "scaling");
  return groups[index].labels[curves[curve].labels[index]];
}

function place(key, point) {
  return data.at[key][point];
}

function swept(key) {
  return keys[key].values.length > 1;
}

// the value of a key at a point, in words
function keyText(key, point) {
  return place(key, point) < 0 ? "any" : keys[key].texts[place(key, point)];
}

// whether a point lies where sliders stand, a key aside; one that a point does not have is no matter of it
function liesAt(point, at, aside) {
  return keys.every((_, key) => key === aside || place(key, point) < 0 || place(key, point) === at[key]);
}

// points that differ in one key alone, all others being at the sliders' values
function line(curve, key, at) {
  return ascending(pointsOf[curve].filter((point) => liesAt(point, at, key)), (point) => place(key, point));
}

function pointAt(curve, at) {
  return curve < 0 ? -1 : (pointsOf[curve].find((point) => liesAt(point, at)) ?? -1);
}

// the curves that are chosen
function ticked(state) {
  const chosen = ({ labels }) => groups.every((group, index) => !state.off[group.id].has(labels[index]));
  return curves.map(({ name, labels }, curve) => ({ name, labels, curve })).filter(chosen);
}

// what a state shows: for each curve that is chosen its points over x, and the one at the sliders' values
function viewOf(state) {
  const lines = ticked(state)
    .map(({ name, curve }) => {
      const points = line(curve, state.x, state.at);
      const flat = points.length > 0 && place(state.x, points[0]) < 0;
      return { curve, name: flat ? `${name} (has no such key)` : name, points, flat, chosen: pointAt(curve, state.at) };
    });
  const focused = lines.find((each) => each.curve === state.focus) || lines[0];
  return {
    state,
    key: keys[state.x],
    shown: lines,
    lines: lines.filter((each) => each.points.length),
    chosen: lines.filter((each) => each.chosen >= 0),
    focus: focused ? focused.curve : -1,
    here: focused ? focused.chosen : -1,
    name: focused ? focused.name : "",
  };
}

// of the curves that are chosen the points at the sliders' values
function chosenPoints(view) {
  return view.chosen.map((each) => each.chosen);
}

function inWords(told) {
  return keys.map((_, key) => (swept(key) || key === 0 ? told(key) : "")).filter((words) => words);
}

// the settings of the sliders, and those of a point
function settingsText(at) {
  return listed(inWords((key) => keys[key].told[at[key]]));
}
function pointSettings(point, of = () => true) {
  return inWords((key) => of(keys[key]) && keys[key].told[place(key, point)]).join(", ");
}
