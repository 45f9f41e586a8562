// One state, and everything that follows it. `stop` is given where a page shows one report after another: it aborts what this one has begun.

const still = JSON.parse(document.getElementById("figures").textContent);
const overKey = [throughputFigure, efficiencyFigure, costFigure, staleMeanFigure, linkFigure, jobCostFigure];
const here = [mapFigure, rankedFigure, againstFigure, staleDistributionFigure, stepsHereFigure, stepsOverFigure, sensitivityFigure, busyFigure, jobFigure, jobSharesFigure, jobHereFigure];
const live = [...overKey, ...here].filter((figure) => plotElement(figure.id));
const names = [...document.querySelectorAll(".plot")].map((plot) => plot.id.slice("figure-".length));
const folded = [...document.querySelectorAll("details.folded")];
const waiting = new Set(names);
let state = stop ? initialState() : stateFrom(window.location.hash),
  view = viewOf(state),
  asked = false;

function setHeight(figure) {
  if (figure.height) {
    const plot = plotElement(figure.id);
    plot.style.setProperty("--height", `${figure.height(view, figure.points(view), plot.clientWidth)}px`);
  }
}

function setTitle(figure) {
  const title = document.getElementById("title-" + figure.id),
    points = figure.points(view);
  title.textContent = (points.length && figure.title(view, points)) || title.dataset.name;
}

// what a figure shows and how it is drawn, for those who do not see it; the numbers are in the table behind it
function labelOf(plot) {
  const figure = plot.closest("figure"),
    told = [...figure.querySelectorAll("figcaption :is(h3, p)")].map((words) => words.textContent.replace(/\.$/, "")),
    table = figure.querySelector("details.behind > summary");
  return [...told, ...(table ? [`The table “${table.textContent.replace("Table: ", "")}” below holds the same numbers`] : [])].join(". ") + ".";
}

// a figure in a section that is closed may have no width to be drawn in: it waits until that is opened
function canBeDrawn(name) {
  return plotElement(name).closest("details.folded:not([open])") === null;
}

function drawOne(name) {
  waiting.delete(name);
  const figure = live.find((each) => each.id === name),
    plot = plotElement(name);
  plot.setAttribute("aria-label", labelOf(plot));
  if (!figure) {
    const drawn = still[`${name}-${view.here}`] || still[name];
    if (drawn.layout.height) {
      plot.style.setProperty("--height", `${drawn.layout.height}px`);
    }
    return drawPlot(name, drawn);
  }
  setHeight(figure);
  const points = figure.points(view),
    drawn = points.length ? figure.draw(view, points, plot.clientWidth) : emptyFigure(view.lines.length ? figure.none : undefined);
  return drawPlot(name, drawn).then(() => hear(figure, plot));
}

// a figure in which one may click on what the sliders are to show
function hear(figure, plot) {
  if (figure.click && !plot.dataset.heard) {
    plot.dataset.heard = "yes";
    plot.on("plotly_click", ({ points: [point] }) => update(() => figure.click(view, point)));
  }
}

function update(change) {
  change(state);
  if (!stop) {
    keepInAddress(state);
  }
  show();
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
  fillTable(details.querySelector(".behind-table"), figure.id, details.dataset.title, figure.table(view, figure.points(view)));
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
  [showWhere, showLegends, fillLimits].forEach((fill) => fill(view));
  document.querySelectorAll("details[data-of][open]").forEach(fillBehind);
  // all before any is drawn: figures of a row are as high as its highest
  live.forEach((figure) => {
    setTitle(figure);
    setHeight(figure);
    waiting.add(figure.id);
  });
  showLayout();
  drawSoon();
}

// steps in time and memory of the layout in detail, where the page has them, else of the answer
const ofAnswer = {};
function showLayout() {
  const titles = data.of_layouts[view.here] || {};
  names.filter((name) => Object.values(data.of_layouts).some((each) => name in each)).forEach((name) => {
    const figure = plotElement(name).closest("figure"),
      title = figure.querySelector("h3");
    ofAnswer[name] = ofAnswer[name] || title.textContent;
    title.textContent = titles[name] || ofAnswer[name];
    waiting.add(name);
  });
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

listen(update);
if (!stop) {
  window.addEventListener("hashchange", () => {
    state = stateFrom(window.location.hash);
    show();
  });
}
document.querySelectorAll("details[data-of]").forEach((details) =>
  details.addEventListener("toggle", () => details.open && fillBehind(details)),
);
buttonsOfStaticTables();
folded.forEach((section) => section.addEventListener("toggle", () => section.open && drawSoon()));
followTheme(redraw, stop);

show();
const [lead] = document.querySelectorAll(".lead .plot");
if (lead) {
  drawOne(lead.id.slice("figure-".length)).then(() => performance.mark("first-figure"));
}
