// How busy the network and the servers are at the chosen settings.

function usedResources(view) {
  return data.busy.filter((column) => view.chosen.some((each) => value(column, each.chosen) !== null));
}

const busyFigure = {
  id: "busy",
  title(view) {
    const busy = view.here < 0 ? null : value("devices_busy", view.here);
    return busy === null ? "" : `Devices are busy ${shown("devices_busy", view.here)} of the time${whose(view, view.here)}`;
  },
  points: chosenPoints,
  height: (view, points) => 60 + usedResources(view).length * Math.max(34, 14 + 9 * points.length),
  draw(view) {
    const used = usedResources(view),
      names = used.map((column) => data.columns[column].heading);
    const words = (column, point) => (value(column, point) === null ? "none" : shown(column, point));
    const text = (column, point) => `<b>${data.columns[column].heading}</b>: ${words(column, point)}`;
    return {
      data: view.chosen.map(({ name, curve, chosen }) =>
        barTrace({
          name: plotText(name),
          legendgroup: "s" + curve,
          marker: { color: curves[curve].colour, line: { width: 0 } },
          x: used.map((column) => value(column, chosen)),
          y: used.map((_, row) => row),
          hovertext: used.map((column) => [...pointLines(chosen), text(column, chosen)].join("<br>")),
        }),
      ),
      layout: layoutOf({
        barmode: "group",
        bargap: 0.28,
        margin: { l: 98, r: 14, t: 12, b: 32 },
        xaxis: shareAxis(1.02),
        yaxis: rowsAxis(used.length, 0.5, names),
      }),
    };
  },
  table: (view, points) => tableOf("busy", points),
};
