// How values are written: the one reader of the formats that the data give for each kind of value.

function unitOf(size, format) {
  // 0.9996 of a unit reads as one of it
  const enough = size ? 1 - 0.5 * 10 ** -format.digits : 1;
  return format.units.find(([scale]) => (size || 1) >= scale * enough) || format.units[format.units.length - 1];
}

function digitsOf(number, { digits, whole, least_places, most_places, whole_from, keeps_zeros }) {
  const [mantissa, exponent] = number.toExponential(digits - 1).split("e"),
    power = Number(exponent);
  if (power >= 15 || (power < -4 && most_places > -power)) {
    const size = String(Math.abs(power)).padStart(2, "0");
    return `${keeps_zeros ? mantissa : mantissa.replace(/\.?0+$/, "")}e${power < 0 ? "-" : "+"}${size}`;
  }
  const places = number >= whole_from ? 0 : Math.min(Math.max(digits - 1 - power, least_places), most_places);
  const rounded = whole || power < digits ? number : Number(number.toExponential(digits - 1));
  const [before, after = ""] = rounded.toFixed(places).split(".");
  const kept = keeps_zeros && before !== "0" ? after : after.slice(0, least_places) + after.slice(least_places).replace(/0+$/, "");
  return before.replace(/\B(?=(\d{3})+$)/g, ",") + (kept ? "." + kept : "");
}

function written(value, kind) {
  if (value === null || value === undefined) {
    return data.none;
  }
  if (typeof value === "string") {
    return value;
  }
  const format = data.formats[kind] || data.formats.number,
    size = Math.abs(value);
  if (size > 0 && size < format.least) {
    return "<" + written(format.least, kind);
  }
  const [scale, unit] = unitOf(size, format),
    digits = digitsOf(size / scale, format);
  const sign = value < 0 ? "\u2212" : format.signed ? "+" : "";
  return (/[1-9]/.test(digits) ? sign : format.signed ? "\u00b1" : "") + format.prefix + digits + unit;
}

// text for inside a figure, where plotly would read tags and entities
function plotText(text) {
  return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function cut(text, longest) {
  return text.length <= longest ? text : text.slice(0, Math.max(1, longest - 1)).trimEnd() + "…";
}

// text in lines of at most so many letters, broken between words
function inLines(text, letters) {
  return text.split(" ").reduce((lines, word) => {
    const last = lines[lines.length - 1];
    return last && last.length + word.length < letters ? [...lines.slice(0, -1), `${last} ${word}`] : [...lines, word];
  }, []);
}

// items by what is read of them, from the least on
function ascending(items, read) {
  return [...items].sort((before, after) => read(before) - read(after));
}

function listed(parts, most = parts.length) {
  const shown = parts.length > most ? [...parts.slice(0, most), `${parts.length - most} more`] : parts;
  return shown.length > 1 ? `${shown.slice(0, -1).join(", ")} and ${shown[shown.length - 1]}` : shown.join("");
}
