// What the reader chose; it lives in the address, so that a link restores it.

// figures run over what is chosen, where anything is, before what is met
const axes = keys.map((_, key) => key).filter(swept),
  firstAxis = axes.find((key) => !keys[key].condition) ?? axes[0] ?? 0;

function initialState() {
  return {
    x: firstAxis,
    at: data.chosen.at.slice(),
    off: Object.fromEntries(groups.map((group) => [group.id, new Set()])),
    xlog: true,
    ylog: true,
    focus: data.chosen.curve,
  };
}

function hashOf(state) {
  const words = new URLSearchParams({ x: keys[state.x].path });
  keys.filter((_, index) => swept(index)).forEach((key) => words.set("at." + key.path, String(key.values[state.at[keys.indexOf(key)]])));
  ["x", "y"].filter((axis) => !state[axis + "log"]).forEach((axis) => words.set(axis + "axis", "linear"));
  const hidden = groups.filter(({ id }) => state.off[id].size);
  hidden.forEach(({ id }) => words.set("hide." + id, [...state.off[id]].sort((a, b) => a - b).join(".")));
  words.set("of", String(state.focus));
  return "#" + words;
}

// what of an address is not understood is left at its initial value
function stateFrom(hash) {
  const state = initialState(),
    words = new URLSearchParams(hash.replace(/^#/, ""));
  const numberBelow = (word, end) => (/^\d+$/.test(word) && Number(word) < end ? Number(word) : -1);
  const x = keys.findIndex((key, index) => key.path === words.get("x") && (swept(index) || index === state.x));
  state.x = x < 0 ? state.x : x;
  keys.forEach((key, index) => {
    const named = key.values.findIndex((each) => String(each) === words.get("at." + key.path));
    state.at[index] = named < 0 ? state.at[index] : named;
  });
  state.xlog = words.get("xaxis") !== "linear";
  state.ylog = words.get("yaxis") !== "linear";
  groups.forEach(({ id, labels }) => {
    const hidden = (words.get("hide." + id) || "").split(".").map((word) => numberBelow(word, labels.length));
    hidden.filter((index) => index >= 0).forEach((index) => state.off[id].add(index));
  });
  const focus = numberBelow(words.get("of") || "", curves.length);
  state.focus = focus < 0 ? state.focus : focus;
  return state;
}

function keepInAddress(state) {
  try {
    window.history.replaceState(null, "", hashOf(state));
  } catch {
    /* an embedding that forbids it: the page works without */
  }
}
