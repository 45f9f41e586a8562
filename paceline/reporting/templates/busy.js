// How busy the network and the servers are: the busiest link over the swept key, and everything at the chosen settings.

const RESOURCES = [
  ["devices_busy", "Devices"],
  ["links_busy", "Links, mean"],
  ["busiest_link", "Busiest link"],
  ["servers_busy", "Servers, mean"],
  ["busiest_server", "Busiest server"],
  ["cores_busy", "Shared cores"],
];

function busyColumns() {
  return [
    ...RESOURCES.map(([column, name]) => numberColumn(name, "share", column)),
    { name: "Name of the busiest link", kind: "text", of: (point) => text("link_name", point) },
    { name: "All-reduce", kind: "text", of: (point) => text("all_reduce", point) },
  ];
}

const linkFigure = {
  id: "links",
  draw(view, width) {
    if (!view.lines.length) {
      return emptyFigure();
    }
    const busy = (point) => number("busiest_link", point);
    const texts = (point) =>
      hoverText(
        point,
        `busiest link ${percent(busy(point))} busy${text("link_name", point) ? ": " + plotText(cut(text("link_name", point), 60)) : ""}`,
        `all links ${percent(number("links_busy", point))}`,
      );
    return {
      data: [...view.lines.map((each) => curveTrace(view, each, busy, texts)), ...ringTraces(view, view.lines, busy)],
      layout: layoutOf({
        margin: keyMargin(view.state.x),
        xaxis: keyAxis(view.state.x, view.state.xlog, width),
        yaxis: linearAxis(1, "", { tickformat: ".0%" }),
        shapes: chosenLine(view),
      }),
    };
  },
  describe(view) {
    return described(view, "Busy share of the busiest link", (point) => number("busiest_link", point), percent);
  },
  table(view) {
    return overX(view, busyColumns());
  },
};

function usedResources(view) {
  return RESOURCES.filter(([column]) => view.chosen.some((each) => number(column, each.chosen) !== null));
}

const busyFigure = {
  id: "busy",
  height(view) {
    return 60 + usedResources(view).length * Math.max(34, 14 + 9 * view.chosen.length);
  },
  draw(view) {
    if (!view.chosen.length) {
      return emptyFigure();
    }
    const used = usedResources(view);
    return {
      data: view.chosen.map((each) => ({
        type: "bar",
        orientation: "h",
        name: plotText(each.name),
        legendgroup: "s" + each.curve,
        hoverinfo: "text",
        marker: { color: seriesColour(each.curve), line: { width: 0 } },
        x: used.map(([column]) => number(column, each.chosen)),
        y: used.map((_, row) => row),
        hovertext: used.map(([column, name]) =>
          [
            ...pointLines(each.chosen),
            `<b>${name}</b>: ${number(column, each.chosen) === null ? "none" : percent(number(column, each.chosen)) + " busy"}`,
          ].join("<br>"),
        ),
      })),
      layout: layoutOf({
        barmode: "group",
        bargap: 0.28,
        margin: { l: 98, r: 14, t: 12, b: 32 },
        xaxis: {
          range: [0, 1.02],
          tickformat: ".0%",
          tickvals: [0, 0.25, 0.5, 0.75, 1],
          gridcolor: RULE,
          zeroline: false,
          fixedrange: true,
        },
        yaxis: {
          range: [used.length - 0.5, -0.5],
          fixedrange: true,
          showgrid: false,
          zeroline: false,
          tickmode: "array",
          tickvals: used.map((_, row) => row),
          ticktext: used.map(([, name]) => name),
        },
      }),
    };
  },
  describe(view) {
    const told = view.chosen.slice(0, 7).map(
      (each) =>
        `${each.name}: ` +
        usedResources(view)
          .filter(([column]) => number(column, each.chosen) !== null)
          .map(([column, name]) => `${name.toLowerCase()} ${percent(number(column, each.chosen))}`)
          .join(", "),
    );
    return `Busy shares at ${settingsText(view.state.at)}. ${told.join("; ") || "No result"}.`;
  },
  table(view) {
    return tableOf(
      [...pointColumns(), ...busyColumns()],
      view.chosen.map((each) => each.chosen),
    );
  },
};
