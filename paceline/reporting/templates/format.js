// Numbers as people read them: the same rules as the page's text follows.

function amount(value, digits = 3) {
  if (value === 0 || !Number.isFinite(value)) {
    return value === 0 ? "0" : String(value);
  }
  const places = digits - 1 - Math.floor(Math.log10(Math.abs(value)));
  if (Math.abs(value) >= 1e15 || places > 6) {
    return value.toExponential(digits - 1).replace(/e([+-])(\d)$/, "e$10$2");
  }
  const scale = 10 ** -places;
  const rounded = places < 0 ? Math.round(value / scale) * scale : value;
  const text = rounded.toLocaleString("en-US", { minimumFractionDigits: Math.max(0, places), maximumFractionDigits: Math.max(0, places) });
  return text.includes(".") && Math.abs(value) < 1 ? text.replace(/\.?0+$/, "") : text;
}

function percent(share) {
  if (share > 0 && share < 0.001) {
    return "<0.1%";
  }
  const digits = Math.abs(share) > 0 && Math.abs(share) < 0.0995 ? 1 : 0;
  return (share * 100).toFixed(digits) + "%";
}

function dollars(value) {
  if (value >= 1000) {
    return "$" + count(value);
  }
  return "$" + (value >= 0.1 ? value.toFixed(2) : amount(value));
}

function change(share) {
  const size = (Math.abs(share) * 100).toFixed(1);
  return (Number(size) === 0 ? "\u00b1" : share < 0 ? "\u2212" : "+") + size + "%";
}

// for ticks
function wholeChange(share) {
  return share === 0 ? "0%" : change(share).replace(/\.\d%$/, "%");
}

function count(value) {
  return Math.round(value).toLocaleString("en-US");
}

// a number in the largest unit that leaves at least one of it
function scaled(value, units) {
  const unit = units.find(([size]) => Math.abs(value) >= size * (1 - 1e-9)) || units[units.length - 1];
  return [value / unit[0], unit[1]];
}

const TIMES = [
  [3600, "h"],
  [60, "min"],
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
  [1e-9, "ns"],
];
const RATES = [
  [1e12, "Tbit/s"],
  [1e9, "Gbit/s"],
  [1e6, "Mbit/s"],
  [1e3, "kbit/s"],
  [1, "bit/s"],
];
const SIZES = [
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
  [1, "B"],
];

function duration(value) {
  const [number, unit] = value === 0 ? [0, "s"] : scaled(value, TIMES);
  return amount(number) + " " + unit;
}

function short(value) {
  return String(Number(value.toPrecision(6)));
}

function ofKind(value, kind) {
  if (kind === "rate") {
    const [number, unit] = scaled(value * 8, RATES);
    return short(number) + " " + unit;
  }
  if (kind === "bytes") {
    const [number, unit] = scaled(value, SIZES);
    return short(number) + " " + unit;
  }
  if (kind === "seconds") {
    const [number, unit] = value === 0 ? [0, "s"] : scaled(value, TIMES);
    return short(number) + " " + unit;
  }
  return Number.isInteger(value) ? count(value) : short(value);
}

// a cell of a table as a reader sees it
function written(value, kind) {
  if (value === null || value === undefined) {
    return "–";
  }
  if (typeof value === "string") {
    return value;
  }
  switch (kind) {
    case "count":
      return count(value);
    case "seconds":
      return duration(value);
    case "share":
      return percent(value);
    case "change":
      return change(value);
    case "usd":
      return dollars(value);
    case "rate":
    case "bytes":
    case "time":
      return ofKind(value, kind === "time" ? "seconds" : kind);
    case "plain":
      return short(value);
    default:
      return amount(value);
  }
}

// text for inside a figure, where plotly would read tags and entities
function plotText(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function cut(text, longest) {
  return text.length <= longest ? text : text.slice(0, Math.max(1, longest - 1)).trimEnd() + "…";
}

function listed(parts, most = parts.length) {
  const shown = parts.slice(0, most);
  if (parts.length > most) {
    shown.push(parts.length - most + " more");
  }
  return shown.length > 1 ? shown.slice(0, -1).join(", ") + " and " + shown[shown.length - 1] : shown.join("");
}
