// Tables: what a figure shows as rows of raw values, written for reading and saved as CSV.

const UNITS = { seconds: "s", time: "s", rate: "bytes/s", bytes: "bytes", share: "share", change: "share", usd: "USD", hourly: "USD", sum: "USD" };
const KEY_KINDS = { number: "plain", rate: "rate", bytes: "bytes", seconds: "time" };
const FIRST_ROWS = 100;

// columns that say which point a row is of, and its cells in them; scaling is named in every table
function pointColumns() {
  const named = keys.map((key, index) => index).filter((index) => swept(index) || index === 0);
  return [
    { name: "Strategy", kind: "text", of: (point) => curves[data.curve[point]].name },
    { name: "Scaling", kind: "text", of: (point) => scaling(data.curve[point]) },
    ...named.map((index) => ({ name: keys[index].name, kind: KEY_KINDS[keys[index].kind], of: (point) => keyValue(index, point) })),
    numberColumn("Nodes", "count", "nodes"),
  ];
}

function numberColumn(name, kind, column) {
  return { name, kind, of: (point) => number(column, point) };
}

function tableOf(columns, points) {
  return {
    columns: columns.map(({ name, kind }) => ({ name, kind })),
    rows: points.map((point) => columns.map((column) => column.of(point))),
  };
}

function isText(kind) {
  return kind === "text";
}

// a cell of a spreadsheet: text that would be read as a formula is made plain text
function csvCell(value) {
  if (value === null || value === undefined) {
    return "";
  }
  if (typeof value === "number") {
    return String(value);
  }
  const plain = /^[\s]*[=+\-@\t\r]/.test(value) ? "'" + value : value;
  return /[",\r\n]/.test(plain) ? '"' + plain.replace(/"/g, '""') + '"' : plain;
}

function csvOf(table) {
  const heading = table.columns.map(({ name, kind }) => csvCell(UNITS[kind] ? `${name} (${UNITS[kind]})` : name));
  return [heading, ...table.rows.map((row) => row.map(csvCell))].map((cells) => cells.join(",") + "\r\n").join("");
}

function save(name, content) {
  const link = document.createElement("a"),
    url = URL.createObjectURL(new Blob(["\ufeff" + content], { type: "text/csv;charset=utf-8" }));
  link.href = url;
  link.download = name + ".csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function cellElement(value, kind, first) {
  const cell = document.createElement(first ? "th" : "td");
  if (first) {
    cell.scope = "row";
  }
  if (isText(kind)) {
    cell.className = "text";
    cell.append(element("bdi", { textContent: written(value, kind) }));
  } else {
    cell.textContent = written(value, kind);
    if (value !== null) {
      cell.dataset.value = String(value);
    }
  }
  return cell;
}

function saveButton(name, table) {
  const button = element("button", { type: "button", className: "plain", textContent: "Save as CSV" });
  button.addEventListener("click", () => save("paceline-" + name, csvOf(table())));
  return button;
}

// put a table into its place; of a long one the first rows, and a button for the rest
function fillTable(place, name, title, table, whole = table) {
  const headings = table.columns.map((column) =>
    element("th", { scope: "col", className: isText(column.kind) ? "text" : "", textContent: column.name }),
  );
  const body = document.createElement("tbody");
  const rows = (from, to) =>
    table.rows.slice(from, to).forEach((row) => {
      body.append(element("tr", {}, ...row.map((value, index) => cellElement(value, table.columns[index].kind, index === 0))));
    });
  rows(0, FIRST_ROWS);
  const grid = element(
    "table",
    {},
    element("caption", { className: "visually-hidden", textContent: title }),
    element("thead", {}, element("tr", {}, ...headings)),
    body,
  );
  const region = element("div", { className: "scroll", tabIndex: 0 }, grid);
  region.setAttribute("role", "region");
  region.setAttribute("aria-label", title);
  const buttons = element(
    "p",
    { className: "buttons" },
    saveButton(name, () => whole),
  );
  if (table.rows.length > FIRST_ROWS) {
    const more = element("button", { type: "button", className: "plain", textContent: `Show all ${count(table.rows.length)} rows` });
    more.addEventListener("click", () => {
      rows(FIRST_ROWS);
      more.remove();
    });
    buttons.append(more);
  }
  place.replaceChildren(region, buttons);
}

// tables that stand in the page already get their button too
function modelOf(grid) {
  const columns = [...grid.querySelectorAll("thead th")].map((cell) => ({ name: cell.textContent.trim(), kind: cell.dataset.kind }));
  const rows = [...grid.querySelectorAll("tbody tr")].map((row) =>
    [...row.cells].map((cell, index) => {
      if (isText(columns[index].kind)) {
        return cell.textContent.trim();
      }
      return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
    }),
  );
  return { columns, rows };
}

function buttonsOfStaticTables() {
  document.querySelectorAll("table[data-csv]").forEach((grid) => {
    grid.closest(".scroll").after(
      element(
        "p",
        { className: "buttons" },
        saveButton(grid.dataset.csv, () => modelOf(grid)),
      ),
    );
  });
}

const RESULT_COLUMNS = [
  ["Throughput (samples/s)", "number", "throughput"],
  ["Low", "number", "low"],
  ["High", "number", "high"],
  ["Monte Carlo error", "number", "error"],
  ["Speed-up", "number", "speedup"],
  ["Low speed-up", "number", "speedup_low"],
  ["High speed-up", "number", "speedup_high"],
  ["Efficiency", "share", "efficiency"],
  ["Low efficiency", "share", "efficiency_low"],
  ["High efficiency", "share", "efficiency_high"],
  ["Updates/s", "number", "updates"],
  ["Step, mean", "seconds", "step_mean"],
  ["Step, median", "seconds", "step_p50"],
  ["Step, 95%", "seconds", "step_p95"],
  ["Step, 99%", "seconds", "step_p99"],
  ["Input", "seconds", "input"],
  ["Compute", "seconds", "compute"],
  ["Exposed communication", "seconds", "exposed_communication"],
  ["Waiting", "seconds", "waiting"],
  ["Apply", "seconds", "apply"],
  ["Hidden communication", "seconds", "hidden_communication"],
  ["Mean staleness", "number", "stale_mean"],
  ["Staleness, median", "count", "stale_p50"],
  ["Staleness, 95%", "count", "stale_p95"],
  ["Staleness, 99%", "count", "stale_p99"],
  ["Staleness, most", "count", "stale_max"],
  ["Gradients dropped", "share", "dropped"],
  ["Samples/s dropped", "number", "wasted"],
  ["Devices busy", "share", "devices_busy"],
  ["Links busy", "share", "links_busy"],
  ["Busiest link", "share", "busiest_link"],
  ["Servers busy", "share", "servers_busy"],
  ["Busiest server", "share", "busiest_server"],
  ["Shared cores busy", "share", "cores_busy"],
  ["Replicas", "count", "replicas"],
  ["Servers", "count", "servers"],
  ["Devices of a node", "count", "devices_per_node"],
  ["Batch of a replica", "count", "batch"],
  ["Steps of each", "count", "steps"],
  ["Steps of the job", "count", "job_steps"],
  ["Replications", "count", "replications"],
  ["Cost of an hour", "usd", "hourly"],
];

// everything about every result; for reading without the columns that hold nothing anywhere
function resultsTable(all) {
  const columns = pointColumns(),
    named = new Set(columns.map((column) => column.name));
  columns.push(...RESULT_COLUMNS.filter(([name]) => !named.has(name)).map((column) => numberColumn(...column)));
  [
    ["Cost of a million samples", "mean"],
    ["Low cost", "low"],
    ["High cost", "high"],
  ].forEach(([name, part]) => columns.push({ name, kind: "usd", of: (point) => cost(part, point) }));
  [
    ["Limited by", "limit"],
    ["Name of the busiest link", "link_name"],
    ["All-reduce", "all_reduce"],
    ["Placement", "placement"],
  ].forEach(([name, column]) => columns.push({ name, kind: "text", of: (point) => text(column, point) }));
  columns.push({ name: "Beyond what was measured", kind: "text", of: (point) => (number("beyond", point) ? "yes" : "no") });
  columns.push({ name: "Warnings", kind: "count", of: (point) => data.warnings[1][point].length });
  if (all) {
    columns.push({
      name: "What they say",
      kind: "text",
      of: (point) => data.warnings[1][point].map((index) => data.warnings[0][index]).join(" "),
    });
  }
  columns.push(numberColumn("Seed", "plain", "seed"), { name: "Scenario", kind: "text", of: (point) => text("hash", point) });
  const points = data.curve.map((_, point) => point);
  return tableOf(all ? columns : columns.filter((column) => points.some((point) => column.of(point))), points);
}
