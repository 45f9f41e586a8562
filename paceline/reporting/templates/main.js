// One state, and everything that follows it. `stop` is given where a page shows one report after another: it aborts what this one has begun.

const still = JSON.parse(document.getElementById("figures").textContent);
const overKey = [throughputFigure, efficiencyFigure, costFigure, staleMeanFigure, linkFigure, jobCostFigure];
const here = [againstFigure, staleDistributionFigure, stepsHereFigure, stepsOverFigure, sensitivityFigure, busyFigure, jobFigure, jobSharesFigure, jobHereFigure];
const live = [...overKey, ...here].filter((figure) => plotElement(figure.id));
const names = [...document.querySelectorAll(".plot")].map((plot) => plot.id.slice("figure-".length));
const folded = [...document.querySelectorAll("details.folded")];
const waiting = new Set(names);
let state = stateFrom(window.location.hash),
  view = viewOf(state),
  asked = false;

function setHeight(figure) {
  if (figure.height) {
    const plot = plotElement(figure.id);
    plot.style.setProperty("--height", `${figure.height(view, plot.clientWidth)}px`);
  }
}

function setTitle(figure) {
  const title = document.getElementById("title-" + figure.id);
  title.textContent = (view.lines.length && figure.title(view)) || title.dataset.name;
}

// a figure in a section that is closed may have no width to be drawn in: it waits until that is opened
function canBeDrawn(name) {
  return plotElement(name).closest("details.folded:not([open])") === null;
}

function drawOne(name) {
  waiting.delete(name);
  const figure = live.find((each) => each.id === name),
    plot = plotElement(name);
  if (!figure) {
    return drawPlot(name, still[name]);
  }
  setHeight(figure);
  plot.setAttribute("aria-label", figure.describe(view));
  return drawPlot(name, view.lines.length ? figure.draw(view, plot.clientWidth) : emptyFigure());
}

function inSight(name) {
  const box = plotElement(name).getBoundingClientRect();
  return box.bottom > 0 && box.top < window.innerHeight;
}

// one figure at a time, those in sight first, so that the page answers meanwhile
function drawWaiting() {
  if (stop && stop.aborted) {
    return;
  }
  const drawable = [...waiting].filter(canBeDrawn),
    name = drawable.find(inSight) || drawable[0];
  asked = name !== undefined;
  if (asked) {
    drawOne(name);
    setTimeout(drawWaiting, 0);
  } else {
    fillResults();
    document.documentElement.dataset.drawn = "yes";
  }
}

// tables behind figures are made when they are opened, and follow the state while they are open
function fillBehind(details) {
  const figure = live.find((each) => each.id === details.dataset.of);
  fillTable(details.querySelector(".behind-table"), figure.id, details.dataset.title, figure.table(view));
}

// the longest table comes last, so that no figure waits for it
function fillResults() {
  const grid = document.getElementById("all-results"),
    points = data.curve.map((_, point) => point);
  if (!grid.hasChildNodes()) {
    fillTable(grid, "results", "All results", tableOf("shown", points), tableOf("results", points));
  }
}

function show() {
  view = viewOf(state);
  showState(state);
  [showWhere, showLegends, showCards, fillLimits].forEach((fill) => fill(view));
  document.querySelectorAll("details[data-of][open]").forEach(fillBehind);
  // all before any is drawn: figures of a row are as high as its highest
  live.forEach((figure) => {
    setTitle(figure);
    setHeight(figure);
    waiting.add(figure.id);
  });
  drawSoon();
}

function drawSoon() {
  document.documentElement.dataset.drawn = "no";
  if (!asked) {
    asked = true;
    setTimeout(drawWaiting, 0);
  }
}

// all that are open, at once: in other colours, or at another width
function redraw() {
  live.forEach(setHeight);
  names.filter(canBeDrawn).forEach(drawOne);
}

// on paper there is nothing to open
const opened = [];
function forPaper(paper) {
  if (paper) {
    opened.push(...folded.filter((section) => "paper" in section.dataset && !section.open));
  }
  opened.forEach((section) => {
    section.open = paper;
  });
  opened.splice(0, paper ? 0 : opened.length);
  redraw();
}

listen((change) => {
  change(state);
  keepInAddress(state);
  show();
});
window.addEventListener("hashchange", () => {
  state = stateFrom(window.location.hash);
  show();
}, { signal: stop });
document.querySelectorAll("details[data-of]").forEach((details) =>
  details.addEventListener("toggle", () => details.open && fillBehind(details)),
);
buttonsOfStaticTables();
folded.forEach((section) => section.addEventListener("toggle", () => section.open && drawSoon()));
followTheme(redraw, forPaper, stop);

show();
drawOne("throughput").then(() => {
  performance.mark("first-figure");
});
