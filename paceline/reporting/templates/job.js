// The whole job: where its time goes over the swept key for one curve, and at the chosen settings for each; what it costs.

const MOST_JOBS = 24,
  FEWEST_BAR_PX = 56,
  STEPS = "job_steps_s",
  NO_JOB = "No whole job at these settings.";

// the share of a job that is no step that is kept
function besideSteps(point) {
  return 1 - value(STEPS, point) / value("job_time_s", point);
}

function withJob(points) {
  return points.filter((point) => value("job_time_s", point) !== null);
}

// the unit in which all of some times can be read
function timeUnit(seconds) {
  const [scale, unit] = unitOf(Math.max(...seconds, 0), data.formats.seconds);
  return { scale, unit: unit.trim() };
}

function jobLength(point) {
  return Math.max(value("job_time_s", point), value("job_time_high_s", point));
}

// stacked bars of those of a job's parts that are `drawn`, each so long as `length` has it of a part's seconds
function jobBars(points, length, upright, changes = {}, drawn = () => true) {
  const rows = points.map((_, row) => row);
  const text = (part, point) =>
    `<b>${data.columns[part].heading}</b>: ${shown(part, point)}, ${written(value(part, point) / value("job_time_s", point), "share")} of the job`;
  const whole = (point) =>
    [
      `the whole job ${shown("job_time_s", point)} (90% interval ${interval("job_time_low_s", "job_time_high_s", point)})`,
      `goodput ${shown("goodput", point)}`,
      ...(value("job_cost_usd", point) === null ? [] : [`${shown("job_cost_usd", point)} for all of it`]),
    ].join("<br>");
  return data.job_parts
    .filter(([part]) => drawn(part) && points.some((point) => value(part, point) > 0))
    .map(([part, colour]) => {
      const along = points.map((point) => length(value(part, point), point));
      return barTrace({
        name: data.columns[part].heading,
        legendgroup: part,
        ...(upright ? { orientation: "v", x: rows, y: along } : { x: along, y: rows }),
        hovertext: points.map((point) => [...pointLines(point), text(part, point), whole(point)].join("<br>")),
        marker: { color: colour, line: { color: PAPER, width: 0.5 } },
        ...changes,
      });
    });
}

// the interval of the time of each
function jobEnds(points, scale, upright) {
  const rows = points.map((_, row) => row),
    [middle, low, high] = ["job_time_s", "job_time_low_s", "job_time_high_s"].map((name) => points.map((point) => value(name, point) / scale)),
    bar = whiskers(middle, low, high, WHISKER),
    marker = { size: 1, color: INK };
  const placed = upright ? { x: rows, y: middle, error_y: bar } : { x: middle, y: rows, error_x: bar };
  return scatterTrace({ ...placed, hoverinfo: "skip", showlegend: false, marker });
}

// what each upright bar is in all, above it
function topLabels(points, height, words) {
  return points.map((point, row) => ({ ...LABEL, x: row, y: height(point), yanchor: "bottom", text: words(point) }));
}

// upright bars over the swept key: `draw` gives their traces, the axis along them and labels above them
function jobOverKey(id, { draw, title }) {
  return {
    id,
    title: (view) => (view.here < 0 || value("job_time_s", view.here) === null ? "" : title(view.here, whereText(view))),
    points: (view) => withJob(focusLine(view)),
    none: NO_JOB,
    draw(view, jobs, width) {
      const points = evenly(jobs, MOST_JOBS),
        texts = points.map((point) => keyText(view.state.x, point)),
        marks = texts.map((text, row) => ({ value: row, at: (row + 0.5) / points.length, text })),
        { traces, yaxis, tops } = draw(points, { width: Math.min(0.7, 0.16 * points.length) }),
        xaxis = axisOf(view.key.name, { ...ticksOf(thinned(marks, width - 66)), tickangle: 0, range: [-0.5, points.length - 0.5] });
      return {
        data: traces,
        layout: layoutOf({
          annotations: width / points.length >= FEWEST_BAR_PX ? tops : [],
          barmode: "stack",
          margin: { ...data.style.layout.margin, t: 22, l: 54, b: 50 },
          xaxis: { ...xaxis, showgrid: false },
          yaxis,
        }),
      };
    },
    table: (view, jobs) => tableOf("job", jobs),
  };
}

const jobFigure = jobOverKey("job", {
  draw(points, changes) {
    const { scale, unit } = timeUnit(points.map(jobLength));
    return {
      tops: topLabels(points, (point) => jobLength(point) / scale, (point) => shown("job_time_s", point)),
      traces: [...jobBars(points, (seconds) => seconds / scale, true, changes), jobEnds(points, scale, true)],
      yaxis: linearAxis(Math.max(...points.map(jobLength)) / scale, { title: { text: `Time (${unit})`, standoff: 6 } }),
    };
  },
  title: (point, where) => `With ${where}, the job takes ${shown("job_time_s", point)}`,
});

const jobSharesFigure = jobOverKey("job-shares", {
  draw(points, changes) {
    const most = Math.max(...points.map(besideSteps));
    return {
      tops: topLabels(points, besideSteps, (point) => written(besideSteps(point), "share")),
      traces: jobBars(points, (seconds, point) => seconds / value("job_time_s", point), true, changes, (part) => part !== STEPS),
      yaxis: linearAxis(most, { tickformat: most >= 0.05 ? ".0%" : ".1%" }),
    };
  },
  title: (point, where) => `With ${where}, ${written(besideSteps(point), "share")} of the job is not steps`,
});

const jobHereFigure = {
  id: "job-here",
  points: (view) => withJob(chosenPoints(view)),
  title(view, points) {
    const [best] = ranking(view, points);
    return best === undefined ? "" : `With ${whereText(view)}, the job is shortest by ${nameOf(best)}: ${shown("job_time_s", best)}`;
  },
  none: NO_JOB,
  height: (view, points) => 70 + 50 * Math.max(2, points.length),
  draw(view, points, width) {
    const { scale, unit } = timeUnit(points.map(jobLength)),
      most = Math.max(...points.map(jobLength)) / scale,
      label = (point, row) => rowLabel(plotText(cut(nameOf(point), Math.floor(width / 6.8))), row, 0.26);
    return {
      data: [...jobBars(points, (seconds) => seconds / scale, false, { width: 0.44, offset: -0.2 }), jobEnds(points, scale, false)],
      layout: layoutOf({
        barmode: "stack",
        margin: { l: 8, r: 16, t: 26, b: 44 },
        annotations: points.map(label),
        xaxis: linearAxis(most, { title: { text: `Time (${unit})`, standoff: 8 }, fixedrange: true }),
        yaxis: rowsAxis(points.length, 0.62),
      }),
    };
  },
  table: (view, points) => tableOf("job", points),
};

const jobCostFigure = figureOverKey("job-cost", "job_cost_usd", {
  title: (view) => cheapest(view, "job_cost_usd", "for the whole job"),
  hover: (point) =>
    hoverText(
      point,
      `${shown("job_cost_usd", point)} for the whole job`,
      `90% interval ${interval("job_cost_low_usd", "job_cost_high_usd", point)}`,
      `in ${shown("job_time_s", point)} at ${shown("usd_per_hour", point)} an hour`,
    ),
  ends: ["job_cost_low_usd", "job_cost_high_usd"],
  log: true,
  ticks: { tickformat: ",~s", tickprefix: "$" },
  none: "Nothing that is chosen has a price.",
  table: "job",
});
