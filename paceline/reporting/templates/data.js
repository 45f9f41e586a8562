// The embedded points, and which of them a choice shows.

const data = JSON.parse(document.getElementById("points").textContent);
const keys = data.keys,
  groups = data.groups,
  curves = data.curves,
  parts = data.parts;
const pointsOf = curves.map(() => []);
data.curve.forEach((curve, point) => pointsOf[curve].push(point));

function number(name, point) {
  return data.numbers[name][point];
}
function text(name, point) {
  const [texts, indices] = data.texts[name];
  return texts[indices[point]];
}
function cost(part, point) {
  return data.cost[part][point];
}
function place(key, point) {
  return data.at[key][point];
}
function keyValue(key, point) {
  return place(key, point) < 0 ? null : keys[key].values[place(key, point)];
}
function keyText(key, index) {
  return ofKind(keys[key].values[index], keys[key].kind);
}
function scaling(curve) {
  return label("scaling", curve);
}
function label(group, curve) {
  const index = groups.findIndex((each) => each.id === group);
  return groups[index].labels[curves[curve].labels[index]];
}
function swept(key) {
  return keys[key].values.length > 1;
}
function keyCounted(key, index) {
  const name = keys[key].name,
    value = keyText(key, index);
  const counted = { replicas: " replica", "strategy.servers": " server" }[keys[key].path];
  if (counted) {
    return value + counted + (keys[key].values[index] === 1 ? "" : "s");
  }
  return name.charAt(0).toLowerCase() + name.slice(1) + " " + value;
}

// the axis of points that differ in one key alone, all others being at the sliders' values
function line(curve, key, at) {
  const held = pointsOf[curve].filter((point) =>
    keys.every((_, other) => other === key || place(other, point) < 0 || place(other, point) === at[other]),
  );
  return held.sort((one, other) => place(key, one) - place(key, other));
}

function pointAt(curve, at) {
  const found = pointsOf[curve].find((point) => keys.every((_, key) => place(key, point) < 0 || place(key, point) === at[key]));
  return found === undefined ? -1 : found;
}

function shownCurves(state) {
  return curves
    .map((_, curve) => curve)
    .filter((curve) => groups.every((group, index) => !state.off[group.id].has(curves[curve].labels[index])));
}

// what a state shows: for each curve that is chosen its points over x, and the one at the sliders' values
function viewOf(state) {
  const shown = shownCurves(state);
  const lines = shown.map((curve) => {
    const points = line(curve, state.x, state.at);
    const flat = points.length > 0 && place(state.x, points[0]) < 0;
    return { curve, name: curves[curve].name, points, flat, chosen: pointAt(curve, state.at) };
  });
  const focus = shown.includes(state.focus) ? state.focus : shown.length ? shown[0] : -1;
  return {
    state,
    lines: lines.filter((each) => each.points.length),
    chosen: lines.filter((each) => each.chosen >= 0),
    shown: lines,
    focus,
  };
}

function xName(view) {
  return keys[view.state.x].name;
}
function xKey(view) {
  return keys[view.state.x];
}

// the settings of the sliders in words
function settingsText(at) {
  return listed(
    keys
      .map((_, key) => key)
      .filter((key) => swept(key) || key === 0)
      .map((key) => keyCounted(key, at[key])),
  );
}
