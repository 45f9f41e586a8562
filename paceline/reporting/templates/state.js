// What the reader chose; it lives in the address, so that a link restores it.

function initialState() {
  return {
    x: Math.max(
      0,
      keys.findIndex((_, key) => swept(key)),
    ),
    at: data.chosen.at.slice(),
    off: Object.fromEntries(groups.map((group) => [group.id, new Set()])),
    xlog: true,
    ylog: true,
    focus: data.chosen.curve,
  };
}

function hashOf(state) {
  const words = new URLSearchParams();
  words.set("x", keys[state.x].path);
  keys.forEach((key, index) => {
    if (swept(index)) {
      words.set("at." + key.path, String(key.values[state.at[index]]));
    }
  });
  if (!state.xlog) {
    words.set("xaxis", "linear");
  }
  if (!state.ylog) {
    words.set("yaxis", "linear");
  }
  groups.forEach((group) => {
    if (state.off[group.id].size) {
      words.set("hide." + group.id, [...state.off[group.id]].sort((a, b) => a - b).join("."));
    }
  });
  words.set("of", String(state.focus));
  return "#" + words;
}

// what of an address is not understood is left at its initial value
function stateFrom(hash) {
  const state = initialState(),
    words = new URLSearchParams(hash.replace(/^#/, ""));
  const x = keys.findIndex((key, index) => key.path === words.get("x") && (swept(index) || index === state.x));
  if (x >= 0) {
    state.x = x;
  }
  keys.forEach((key, index) => {
    const found = key.values.findIndex((value) => String(value) === words.get("at." + key.path));
    if (found >= 0) {
      state.at[index] = found;
    }
  });
  state.xlog = words.get("xaxis") !== "linear";
  state.ylog = words.get("yaxis") !== "linear";
  groups.forEach((group) => {
    (words.get("hide." + group.id) || "").split(".").forEach((index) => {
      if (/^\d+$/.test(index) && Number(index) < group.labels.length) {
        state.off[group.id].add(Number(index));
      }
    });
  });
  const focus = words.get("of");
  if (focus !== null && /^\d+$/.test(focus) && Number(focus) < curves.length) {
    state.focus = Number(focus);
  }
  return state;
}

function keepInAddress(state) {
  try {
    window.history.replaceState(null, "", hashOf(state));
  } catch {
    /* an embedding that forbids it: the page works without */
  }
}
