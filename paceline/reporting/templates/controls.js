// What a reader chooses with: native inputs, so that a keyboard and a screen reader work as everywhere.

function inputs(selector) {
  return [...document.querySelectorAll("#controls " + selector + ", #sliders " + selector)];
}

// set every input as the state says
function showState(state) {
  inputs("[data-group]").forEach((box) => {
    box.checked = !state.off[box.dataset.group].has(Number(box.value));
  });
  inputs("[data-key]").forEach((slider) => {
    const key = Number(slider.dataset.key),
      words = keyText(key, state.at[key]);
    slider.value = String(state.at[key]);
    slider.setAttribute("aria-valuetext", words);
    document.getElementById("value-" + key).textContent = words;
  });
  const pick = (id, value) => {
    const field = document.getElementById(id);
    if (field) {
      field.value = value;
    }
  };
  pick("choose-x", String(state.x));
  pick("choose-focus", String(state.focus));
  pick("x-axis", state.xlog ? "log" : "linear");
  pick("y-axis", state.ylog ? "log" : "linear");
}

function showWhere(view) {
  const words = settingsText(view.state.at),
    without = view.shown.filter((each) => each.chosen < 0);
  const names = without.map((each) => each.name);
  const missing = names.length ? ` No result there of ${listed(names, 3)}.` : "";
  const told = view.shown.length ? missing : " Nothing is chosen: tick a box above.";
  const what = keys.some((_, key) => swept(key)) ? "The sliders stand" : "Everything is";
  document.getElementById("where").textContent = `${what} at ${words}.${told}`;
}

function showLegends(view) {
  const drawn = new Set(view.lines.map((each) => each.curve));
  document.querySelectorAll(".legend [data-curve]").forEach((item) => {
    item.hidden = !drawn.has(Number(item.dataset.curve));
  });
}

// the key figures of the curve in detail, at the sliders' values
function showCards(view) {
  const point = view.focus >= 0 ? pointAt(view.focus, view.state.at) : -1;
  const put = (id, words) => {
    document.getElementById("card-" + id).textContent = words;
  };
  put("name", view.focus >= 0 ? curves[view.focus].name : "Nothing is chosen");
  put("where", `at ${settingsText(view.state.at)}${point < 0 ? "" : ": " + text("placement", point)}`);
  if (point < 0) {
    ["throughput", "efficiency", "cost", "step", "limit"].forEach((id) => put(id, "–"));
    ["interval", "speedup", "hourly", "p95"].forEach((id) => put(id, "no result at these settings"));
    put("range", "");
    return;
  }
  put("throughput", amount(number("throughput", point)));
  put("interval", `samples/s; ${amount(number("low", point))} to ${amount(number("high", point))}`);
  put("efficiency", percent(number("efficiency", point)));
  put("speedup", `${efficiencyEnds(point)}; ${amount(number("speedup", point))} times one replica alone`);
  put("cost", cost("mean", point) === null ? "not known" : dollars(cost("mean", point)));
  put("hourly", cost("mean", point) === null ? "no price with a source" : `a million samples; ${dollars(number("hourly", point))} an hour`);
  put("step", duration(number("step_mean", point)));
  put("p95", `95% below ${duration(number("step_p95", point))}`);
  const limit = text("limit", point);
  put("limit", limit.charAt(0).toUpperCase() + limit.slice(1));
  const graded = {
    checked: "checked against real runs of its kind",
    interpolation: "between what was measured",
  }[text("grade", point)];
  const within = number("calibrated", point) ? graded || "within what was measured" : "what was measured is not recorded";
  put("range", number("beyond", point) ? "beyond what was measured" : within);
}

function copyLink(note) {
  const link = window.location.href;
  const byHand = () => {
    const field = element("input", { type: "text", value: link, readOnly: true });
    field.setAttribute("aria-label", "Link to this view");
    note.replaceChildren(field);
    field.select();
  };
  if (!navigator.clipboard) {
    byHand();
    return;
  }
  navigator.clipboard.writeText(link).then(() => {
    note.textContent = "Copied.";
  }, byHand);
}

// pass on what is chosen: change(state) alters a copy of the state
function listen(update) {
  inputs("[data-group]").forEach((box) =>
    box.addEventListener("change", () =>
      update((state) => {
        const off = state.off[box.dataset.group];
        if (box.checked) {
          off.delete(Number(box.value));
        } else {
          off.add(Number(box.value));
        }
      }),
    ),
  );
  inputs("[data-key]").forEach((slider) =>
    slider.addEventListener("input", () =>
      update((state) => {
        state.at[Number(slider.dataset.key)] = Number(slider.value);
      }),
    ),
  );
  const on = (id, change) => {
    const field = document.getElementById(id);
    if (field) {
      field.addEventListener("change", () => update((state) => change(state, field.value)));
    }
  };
  on("choose-x", (state, value) => {
    state.x = Number(value);
  });
  on("x-axis", (state, value) => {
    state.xlog = value === "log";
  });
  on("y-axis", (state, value) => {
    state.ylog = value === "log";
  });
  on("choose-focus", (state, value) => {
    state.focus = Number(value);
    // a curve that has nothing at the sliders' values takes them to where it has
    if (pointAt(state.focus, state.at) < 0) {
      const last = pointsOf[state.focus][pointsOf[state.focus].length - 1];
      keys.forEach((_, key) => {
        if (place(key, last) >= 0) {
          state.at[key] = place(key, last);
        }
      });
    }
  });
  document.getElementById("copy-link").addEventListener("click", () => copyLink(document.getElementById("copied")));
  document.getElementById("reset").addEventListener("click", () => update((state) => Object.assign(state, initialState())));
}
