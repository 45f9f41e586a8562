// Drawing with plotly in the colours of the reader's theme.

const dark = window.matchMedia("(prefers-color-scheme: dark)");
const touch = window.matchMedia("(pointer: coarse)");
const plotConfig = {
  displaylogo: false,
  responsive: true,
  displayModeBar: "hover",
  scrollZoom: false,
  doubleClick: "reset",
  modeBarButtons: [["toImage", "resetScale2d"]],
  showTips: false,
};

// figures name colours as the style sheet does; put in what they stand for just now
function coloured(value, style) {
  if (typeof value === "string") {
    return value.slice(0, 6) === "var(--" ? style.getPropertyValue(value.slice(4, -1)).trim() : value;
  }
  if (Array.isArray(value)) {
    return value.map((item) => coloured(item, style));
  }
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, coloured(inner, style)]));
  }
  return value;
}

function element(tag, { attributes = {}, ...properties } = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  Object.entries(attributes).forEach(([name, words]) => made.setAttribute(name, words));
  made.append(...children);
  return made;
}

function saveAs(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

async function copyAddress(note) {
  const copied = await navigator.clipboard?.writeText(window.location.href).then(() => true, () => false);
  note.textContent = copied ? "Copied the link." : "Copy the address of this page.";
}

function plotElement(name) {
  return document.getElementById("figure-" + name);
}

const MARK_ROOM_PX = 12;

// a figure that is wider than the screen is scrolled, once, to what its dotted rules mark, and no farther than that needs
function showMarked(element) {
  const roll = element.closest(".roll");
  const { xaxis, shapes } = element._fullLayout;
  if (!roll || roll.dataset.shown || roll.clientWidth === 0 || !shapes || shapes.length === 0) {
    return;
  }
  const at = shapes.map((rule) => xaxis._offset + xaxis.d2p(rule.x0));
  roll.scrollLeft = Math.min(Math.max(...at) + MARK_ROOM_PX - roll.clientWidth, Math.min(...at) - MARK_ROOM_PX);
  roll.dataset.shown = "yes";
}

function drawPlot(name, figure) {
  const whole = { data: figure.data, layout: withTicks(figure.layout, plotElement(name).clientWidth) };
  const drawn = coloured(whole, getComputedStyle(document.documentElement));
  drawn.layout.dragmode = touch.matches ? false : "zoom";
  // bars are not zoomed, and their column of times stands where the buttons would
  const fixed = drawn.layout.yaxis && drawn.layout.yaxis.fixedrange;
  const config = fixed ? { ...plotConfig, displayModeBar: false } : plotConfig;
  return Plotly.react(plotElement(name), drawn.data, drawn.layout, config).then(showMarked);
}

// on paper it is always light, and as wide as a page
function followTheme(redraw, signal = undefined) {
  const drawIn = (theme) => {
    document.documentElement.dataset.theme = theme;
    redraw();
    const shown = [...document.querySelectorAll(".js-plotly-plot")].filter((element) => element.closest("details:not([open])") === null);
    shown.forEach((element) => Plotly.Plots.resize(element));
  };
  dark.addEventListener("change", redraw, { signal });
  window.addEventListener("beforeprint", () => drawIn("light"), { signal });
  window.addEventListener("afterprint", () => drawIn(""), { signal });
}
