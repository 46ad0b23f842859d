// Elements, numbers as text, the state in the address, and requests.

export const $ = (id) => document.getElementById(id);
export const SVG = "http://www.w3.org/2000/svg";

/** Make an element: attributes by name (on... are listeners), then children; null children are left out. */
export function el(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}
export function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}
export function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}
/** Draw `root` anew, and keep the focus and what tables are scrolled to: what is drawn may replace them. */
export function keepingPlace(root, draw) {
  const regionOf = (element) => element.closest(".scroll");
  const label = (region) => region && region.getAttribute("aria-label");
  const place = (element) => {
    const region = regionOf(element),
      own = element === region ? "" : (element.dataset.key ?? element.textContent),
      row = element === region ? null : element.closest("tr");
    return JSON.stringify([element.tagName, own, label(region), row && row.textContent]);
  };
  const focused = root.contains(document.activeElement) ? document.activeElement : null,
    from = focused && place(focused),
    near = focused && label(regionOf(focused));
  const scrolled = new Map(
    [...root.querySelectorAll(".scroll")].map((region) => [label(region), [region.scrollLeft, region.scrollTop]]),
  );
  draw();
  const regions = [...root.querySelectorAll(".scroll")];
  for (const region of regions)
    if (scrolled.has(label(region))) [region.scrollLeft, region.scrollTop] = scrolled.get(label(region));
  if (focused && !root.contains(focused)) {
    const found =
      [...root.querySelectorAll(focused.tagName)].find((candidate) => place(candidate) === from) ||
      regions.find((region) => near && label(region) === near);
    if (found) found.focus({ preventScroll: true });
  }
}
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
export const some = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 });
export const none = "–";

export const count = (n) => (n === null || n === undefined ? none : whole.format(n));
export function short(n) {
  if (n === null || n === undefined) return none;
  for (const [size, unit] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e4, "k"],
  ])
    if (Math.abs(n) >= size) return some.format(n / (unit === "k" ? 1e3 : size)) + unit;
  return Math.abs(n) < 10 && n % 1 ? some.format(n) : whole.format(n);
}
export const bytes = (n) =>
  n === null || n === undefined
    ? none
    : n < 1e4
      ? `${whole.format(n)} B`
      : `${short(n)}B`.replace("kB", " kB").replace(/([MGT])B/, " $1B");
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return none;
  const sign = seconds < 0 ? "-" : "";
  let left = Math.abs(seconds);
  if (left === 0) return "0s";
  if (left < 0.9995) return `${sign}${some.format(left * 1000)}ms`;
  if (left < 60) return `${sign}${+left.toFixed(left < 10 ? 1 : 0)}s`;
  const parts = [];
  left = Math.round(left);
  for (const [size, unit] of [
    [86400, "d"],
    [3600, "h"],
    [60, "m"],
    [1, "s"],
  ]) {
    const n = Math.floor(left / size);
    left -= n * size;
    if (n) parts.push(n + unit);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return sign + parts.join("");
}
/** Write a point in time in UTC, given in microseconds. */
export const time = (micros) =>
  micros === null || micros === undefined ? none : new Date(micros / 1000).toISOString().slice(0, 19).replace("T", " ");
export const percent = (share) =>
  share === null || share === undefined
    ? none
    : share === 0
      ? "0 %"
      : share < 1e-5
        ? "< 0.001 %"
        : `${some.format(share * 100)} %`;
export const range = ([least, most], write) => (least === most ? write(least) : `${write(least)} to ${write(most)}`);

export const state = {
  get: (name) => new URLSearchParams(location.search).get(name),
  put(name, value) {
    const params = new URLSearchParams(location.search);
    if (value) params.set(name, value);
    else params.delete(name);
    history.replaceState(null, "", `?${params}`);
  },
};

/** Have the page ask for its view and draw it again. */
export const refresh = () => dispatchEvent(new Event("refresh"));

/** Return the JSON of a URL; throw its error, or go to the login page. */
export async function ask(url, signal) {
  const answer = await fetch(url, { signal });
  if (answer.status === 401) {
    location.href = "/login";
    throw new Error("logged out");
  }
  const made = await answer.json();
  if (!answer.ok) throw new Error(made.error.message);
  return made;
}

/** Whether the page may redrive dead letters. */
export const rights = { canWrite: false };
