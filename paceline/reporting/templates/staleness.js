// The distribution of staleness at the chosen settings.

function binsOf(point) {
  const [low, width, counts] = data.histograms[point],
    total = counts.reduce((sum, each) => sum + each, 0);
  return counts
    .map((each, index) => ({ from: low + index * width, to: low + (index + 1) * width - 1, width, share: each / total }))
    .filter((bin) => bin.share > 0);
}

function binText({ from, to, share }) {
  const values = [...new Set([from, to])].map((each) => written(each, "count"));
  return `staleness ${values.join(" to ")}: ${written(share, "share")} of updates`;
}

const staleDistributionFigure = {
  id: "distribution",
  points: (view) => view.chosen.filter((each) => data.histograms[each.chosen]).map((each) => ({ ...each, bins: binsOf(each.chosen) })),
  title(view, held) {
    const stale = extreme(held.map((each) => each.chosen), "staleness_p95");
    return stale === undefined ? "" : `95% of gradients are at most ${shown("staleness_p95", stale)} updates old${whose(view, stale)}`;
  },
  none: "Nothing asynchronous at these settings.",
  draw(view, held) {
    const all = held.flatMap((each) => each.bins),
      low = Math.min(...all.map((bin) => bin.from)) - 0.5,
      high = Math.max(...all.map((bin) => bin.to)) + 0.5,
      top = Math.max(...all.map((bin) => bin.share)),
      room = 0.03 * (high - low);
    return {
      data: held.map(({ name, curve, chosen, bins }) => ({
        type: "bar",
        name: plotText(name),
        legendgroup: "s" + curve,
        hoverinfo: "text",
        x: bins.map((bin) => (bin.from + bin.to) / 2),
        y: bins.map((bin) => bin.share),
        width: bins.map((bin) => bin.width * 0.9),
        hovertext: bins.map((bin) => [...pointLines(chosen), binText(bin)].join("<br>")),
        marker: { color: curves[curve].colour, opacity: held.length === 1 ? 0.9 : 0.6, line: { width: 0 } },
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
        yaxis: linearAxis(top, { tickformat: top >= 0.05 ? ".0%" : ".1%", nticks: 5 }),
      }),
    };
  },
  table(view, held) {
    const rows = held.flatMap(({ name, curve, chosen, bins }) =>
      bins.map((bin) => [name, scaling(curve), value("key." + keys[0].path, chosen), bin.from, bin.to, bin.share]),
    );
    return computedTable("distribution", rows);
  },
};
