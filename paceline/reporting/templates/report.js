(function () {
  "use strict";
  var figures = JSON.parse(document.getElementById("figures").textContent);
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  var touch = window.matchMedia("(pointer: coarse)");
  var config = {
    displaylogo: false, responsive: true, displayModeBar: "hover", scrollZoom: false, doubleClick: "reset",
    modeBarButtons: [["toImage", "resetScale2d"]], showTips: false
  };

  // figures name colours as the style sheet does; put in what they stand for just now
  function coloured(value, style) {
    if (typeof value === "string") {
      return value.slice(0, 6) === "var(--" ? style.getPropertyValue(value.slice(4, -1)).trim() : value;
    }
    if (Array.isArray(value)) { return value.map(function (item) { return coloured(item, style); }); }
    if (value && typeof value === "object") {
      var copy = {};
      Object.keys(value).forEach(function (key) { copy[key] = coloured(value[key], style); });
      return copy;
    }
    return value;
  }

  var hidden = {};
  function draw() {
    var style = getComputedStyle(document.documentElement);
    return Promise.all(Object.keys(figures).map(function (name) {
      var element = document.getElementById("figure-" + name);
      var figure = coloured(figures[name], style);
      figure.layout.dragmode = touch.matches ? false : "zoom";
      figure.data.forEach(function (trace) { if (hidden[element.dataset.legend + "/" + trace.legendgroup]) { trace.visible = false; } });
      // bars are not zoomed, and their column of times stands where the buttons would
      var own = figure.layout.yaxis.fixedrange ? Object.assign({}, config, { displayModeBar: false }) : config;
      return Plotly.react(element, figure.data, figure.layout, own);
    }));
  }

  document.querySelectorAll(".legend button").forEach(function (button) {
    button.addEventListener("click", function () {
      var shown = button.getAttribute("aria-pressed") !== "false";
      button.setAttribute("aria-pressed", String(!shown));
      hidden[button.closest(".legend").dataset.legend + "/" + button.dataset.group] = shown;
      draw();
    });
  });

  function resized() { Object.keys(figures).forEach(function (name) { Plotly.Plots.resize(document.getElementById("figure-" + name)); }); }
  dark.addEventListener("change", draw);
  window.addEventListener("beforeprint", function () { document.documentElement.dataset.theme = "light"; draw(); resized(); });
  window.addEventListener("afterprint", function () { delete document.documentElement.dataset.theme; draw(); resized(); });
  draw().then(function () { document.documentElement.dataset.drawn = "yes"; });
})();
