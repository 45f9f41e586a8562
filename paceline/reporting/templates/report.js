(function () {
"use strict";
const data = JSON.parse(document.getElementById("needed").textContent);
{% include "format.js" %}
{% include "axes.js" %}
{% include "plots.js" %}
const figures = JSON.parse(document.getElementById("figures").textContent);
const hidden = {};

function draw() {
  return Promise.all(Object.keys(figures).map((name) => {
    const legend = plotElement(name).dataset.legend;
    const traces = figures[name].data.map((trace) => hidden[legend + "/" + trace.legendgroup] ? { ...trace, visible: false } : trace);
    return drawPlot(name, { data: traces, layout: figures[name].layout });
  }));
}

document.querySelectorAll(".legend button").forEach((button) => {
  button.addEventListener("click", () => {
    const shown = button.getAttribute("aria-pressed") !== "false";
    button.setAttribute("aria-pressed", String(!shown));
    hidden[button.closest(".legend").dataset.legend + "/" + button.dataset.group] = shown;
    draw();
  });
});

// on paper what is short is open
window.addEventListener("beforeprint", () => {
  document.querySelectorAll("details[data-paper]").forEach((part) => { part.open = true; });
});

followTheme(draw);
draw().then(() => { document.documentElement.dataset.drawn = "yes"; });
})();
