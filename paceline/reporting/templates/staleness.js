// Staleness: its mean over the swept key, and its distribution at the chosen settings.

function stale(lines) {
  return lines
    .map((each) => ({ ...each, points: each.points.filter((point) => number("stale_mean", point) !== null) }))
    .filter((each) => each.points.length);
}

const staleMeanFigure = {
  id: "staleness",
  draw(view, width) {
    const held = stale(view.lines);
    if (!held.length) {
      return emptyFigure("Nothing that is chosen is asynchronous.");
    }
    const mean = (point) => number("stale_mean", point),
      top = (point) => number("stale_p95", point);
    // a log axis has no place for zero
    const log = view.state.ylog && held.some((each) => each.points.some((point) => mean(point) > 0));
    const shown = held
      .map((each) => ({ ...each, points: log ? each.points.filter((point) => mean(point) > 0) : each.points }))
      .filter((each) => each.points.length);
    const texts = (point) =>
      hoverText(
        point,
        `mean staleness ${amount(mean(point))}`,
        `95% below ${count(top(point))}, at most ${count(number("stale_max", point))}`,
      );
    const reference = [];
    if (xKey(view).path === "replicas" && swept(view.state.x)) {
      const counts = xKey(view).values.filter((value) => value > 1);
      reference.push(
        referenceTrace(
          counts,
          counts.map((value) => value - 1),
          "n − 1",
        ),
      );
    }
    const seen = shown.flatMap((each) => each.points.map(mean)).concat(...reference.map((trace) => trace.y));
    return {
      data: [
        ...reference,
        ...shown.map((each) => curveTrace(view, each, mean, texts)),
        ...ringTraces(
          view,
          shown.map((each) => ({ ...each, chosen: each.points.includes(each.chosen) ? each.chosen : -1 })),
          mean,
        ),
      ],
      layout: layoutOf({
        margin: keyMargin(view.state.x),
        xaxis: keyAxis(view.state.x, view.state.xlog, width),
        yaxis: log ? logAxis(seen) : linearAxis(Math.max(...seen)),
        shapes: chosenLine(view),
      }),
    };
  },
  describe(view) {
    return described(
      { ...view, lines: stale(view.lines) },
      "Mean staleness in updates",
      (point) => number("stale_mean", point),
      (value) => amount(value),
    );
  },
  table(view) {
    const columns = [
      ["Mean staleness", "number", "stale_mean"],
      ["Median", "count", "stale_p50"],
      ["95%", "count", "stale_p95"],
      ["99%", "count", "stale_p99"],
      ["Most", "count", "stale_max"],
    ];
    return tableOf(
      [...pointColumns(), ...columns.map((column) => numberColumn(...column))],
      stale(view.lines).flatMap((each) => each.points),
    );
  },
};

function binsOf(point) {
  const [low, width, counts] = data.histograms[point],
    total = counts.reduce((sum, value) => sum + value, 0);
  return counts
    .map((value, index) => ({ from: low + index * width, to: low + (index + 1) * width - 1, width, share: value / total }))
    .filter((bin) => bin.share > 0);
}

function binText(bin) {
  return bin.from === bin.to ? count(bin.from) : `${count(bin.from)} to ${count(bin.to)}`;
}

function drawnStale(view) {
  return view.chosen.filter((each) => data.histograms[each.chosen]);
}

const staleDistributionFigure = {
  id: "distribution",
  draw(view) {
    const held = drawnStale(view);
    if (!held.length) {
      return emptyFigure("Nothing asynchronous at these settings.");
    }
    const bins = held.map((each) => binsOf(each.chosen)),
      all = bins.flat();
    const low = Math.min(...all.map((bin) => bin.from)) - 0.5,
      high = Math.max(...all.map((bin) => bin.to)) + 0.5,
      top = Math.max(...all.map((bin) => bin.share));
    const room = 0.03 * (high - low);
    return {
      data: held.map((each, index) => ({
        type: "bar",
        name: plotText(each.name),
        legendgroup: "s" + each.curve,
        hoverinfo: "text",
        x: bins[index].map((bin) => (bin.from + bin.to) / 2),
        y: bins[index].map((bin) => bin.share),
        width: bins[index].map((bin) => bin.width * 0.9),
        hovertext: bins[index].map((bin) =>
          [...pointLines(each.chosen), `staleness ${binText(bin)}: ${percent(bin.share)} of updates`].join("<br>"),
        ),
        marker: { color: seriesColour(each.curve), opacity: held.length === 1 ? 0.9 : 0.6, line: { width: 0 } },
      })),
      layout: layoutOf({
        barmode: "overlay",
        bargap: 0.1,
        xaxis: axisOf("Staleness (updates)", {
          range: [low - room, high + room],
          showgrid: false,
          tickformat: ",d",
          ...(high - low <= 8 ? { dtick: 1 } : { nticks: 6 }),
        }),
        yaxis: linearAxis(top, "", { tickformat: top >= 0.05 ? ".0%" : ".1%", nticks: 5 }),
      }),
    };
  },
  describe(view) {
    const told = drawnStale(view).map((each) => {
      const [mean, high, most] = ["stale_mean", "stale_p95", "stale_max"].map((name) => number(name, each.chosen));
      return `${each.name}: mean ${amount(mean)}, 95% below ${count(high)}, at most ${count(most)}`;
    });
    return `Distribution of staleness at ${settingsText(view.state.at)}. ${told.length ? listed(told, 7) : "Nothing asynchronous here"}.`;
  },
  table(view) {
    const rows = drawnStale(view).flatMap((each) =>
      binsOf(each.chosen).map((bin) => [each.name, scaling(each.curve), number("replicas", each.chosen), bin.from, bin.to, bin.share]),
    );
    return {
      columns: [
        ["Strategy", "text"],
        ["Scaling", "text"],
        ["Replicas", "count"],
        ["Staleness from", "count"],
        ["to", "count"],
        ["Share of updates", "share"],
      ].map(([name, kind]) => ({ name, kind })),
      rows,
    };
  },
};
