// Tables: what a figure shows as rows of raw values, written for reading and saved as CSV.

const FIRST_ROWS = 100;

// a table of points has the columns that the data name for it, any other gets its rows
function tableOf(name, points) {
  const names = data.tables[name];
  return { columns: names.map((each) => data.columns[each]), rows: points.map((point) => names.map((each) => value(each, point))) };
}
function computedTable(name, rows) {
  return { columns: data.tables[name], rows };
}

// a cell of a spreadsheet: text that would be read as a formula is made plain text
function csvCell(cell) {
  if (typeof cell === "number") {
    return String(cell);
  }
  const text = (cell || "").trimStart(),
    plain = text && data.formula.includes(text[0]) ? "'" + cell : cell || "";
  return /[",\r\n]/.test(plain) ? `"${plain.replace(/"/g, '""')}"` : plain;
}

function csvOf({ columns, rows }) {
  const unit = (kind) => (data.formats[kind] || {}).unit;
  const headings = columns.map(({ heading, kind }) => (unit(kind) ? `${heading} (${unit(kind)})` : heading));
  return [headings, ...rows].map((cells) => cells.map(csvCell).join(",") + "\r\n").join("");
}

function button(words, listener) {
  const made = element("button", { type: "button", className: "plain", textContent: words });
  made.addEventListener("click", listener);
  return made;
}

function cellElement(cell, kind, first) {
  const [tag, scope] = first ? ["th", { scope: "row" }] : ["td", {}];
  if (kind === "text") {
    return element(tag, { ...scope, className: "text" }, element("bdi", { textContent: written(cell, kind) }));
  }
  return element(tag, { ...scope, textContent: written(cell, kind), attributes: cell === null ? {} : { "data-value": cell } });
}

function saveButton(name, table) {
  return button("Save as CSV", () => saveAs(`paceline-${name}.csv`, "\ufeff" + csvOf(table()), "text/csv;charset=utf-8"));
}

// put a table into its place; of a long one the first rows, and a button for the rest
function fillTable(place, name, title, table, whole = table) {
  const headings = table.columns.map(({ heading, kind }) =>
    element("th", { scope: "col", className: kind === "text" ? "text" : "", textContent: heading }),
  );
  const body = element("tbody"),
    buttons = element("p", { className: "buttons" }, saveButton(name, () => whole));
  const show = (from, to) =>
    table.rows.slice(from, to).forEach((row) => {
      body.append(element("tr", {}, ...row.map((cell, index) => cellElement(cell, table.columns[index].kind, index === 0))));
    });
  show(0, FIRST_ROWS);
  if (table.rows.length > FIRST_ROWS) {
    const more = button(`Show all ${written(table.rows.length, "count")} rows`, () => {
      show(FIRST_ROWS);
      more.remove();
    });
    buttons.append(more);
  }
  const caption = element("caption", { className: "visually-hidden", textContent: title }),
    grid = element("table", {}, caption, element("thead", {}, element("tr", {}, ...headings)), body);
  const region = { className: "scroll", tabIndex: 0, attributes: { role: "region", "aria-label": title } };
  place.replaceChildren(element("div", region, grid), buttons);
}

// tables that stand in the page already get their button too
function modelOf(grid) {
  const columns = [...grid.querySelectorAll("thead th")].map((cell) => ({ heading: cell.textContent.trim(), kind: cell.dataset.kind }));
  const read = (cell, { kind }) => {
    const number = cell.dataset.value === undefined ? null : Number(cell.dataset.value);
    return kind === "text" ? cell.textContent.trim() : number;
  };
  const rows = [...grid.querySelectorAll("tbody tr")].map((row) => [...row.cells].map((cell, index) => read(cell, columns[index])));
  return { columns, rows };
}

function buttonsOfStaticTables() {
  document.querySelectorAll("table[data-csv]").forEach((grid) => {
    grid.closest(".scroll").after(element("p", { className: "buttons" }, saveButton(grid.dataset.csv, () => modelOf(grid))));
  });
}
