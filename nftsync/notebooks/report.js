/** The first and last values of a chart's lines; names are HTML, as plotly reads them. */
function valuesOf(lines) {
  const number = (value) => value.toLocaleString("en");
  const time = (text) => text.replace("T", " ").slice(0, 16);
  const values = lines.map(({ name, y }) => {
    const text = new DOMParser().parseFromString(name, "text/html").body.textContent;
    return `${text} from ${number(y[0])} to ${number(y.at(-1))}`;
  });
  return `From ${time(lines[0].x[0])} to ${time(lines[0].x.at(-1))}: ${values.join(", ")}.`;
}

for (const chart of document.querySelectorAll(".nftsync-chart")) {
  const { data, layout } = JSON.parse(chart.firstElementChild.textContent);
  const lines = data.filter(({ mode }) => mode === "lines");
  if (lines.length) chart.closest("figure").lastElementChild.textContent = valuesOf(lines);
  Plotly.newPlot(chart, data, layout, { responsive: true });
}

/** Replace a picture that did not load by the reason. */
function explain(image) {
  const text = image.previousElementSibling;
  const { host } = new URL(image.src);
  text.textContent = host && navigator.onLine ? `No picture from ${host}` : "The picture did not load.";
  text.removeAttribute("aria-hidden");
  image.remove();
}

for (const image of [...document.images]) {
  if (image.complete && !image.naturalWidth) explain(image);
  else image.addEventListener("error", () => explain(image));
}

const root = document.documentElement;
const main = document.querySelector("main");
const [width, height] = [178, 269].map((millimeters) => millimeters * 96 / 25.4); // A4 without margins

/** How full the first and the last page are, from 0 to 1: columns break where pages do. */
function fills() {
  main.style.cssText = `width: ${width}px; height: ${height}px; columns: ${width}px; column-gap: 0; column-fill: auto`;
  const { left, top } = main.getBoundingClientRect();
  const boxes = [...main.children].flatMap((child) => [...child.getClientRects()]);
  const first = Math.max(...boxes.filter((box) => box.left < left + width / 2).map((box) => box.bottom));
  main.style.cssText = "";
  return [first, boxes.at(-1).bottom].map((bottom) => (bottom - top) / height);
}

/** Give charts a width (null: the window's), and a height for paper or for the screen. */
function sizeCharts(width, more = 0) {
  for (const chart of document.querySelectorAll(".js-plotly-plot")) {
    chart.screenHeight ??= chart.layout.height;
    const printedHeight = chart.layout.meta?.printed_height + (chart.data.length && more);
    const height = width ? printedHeight || chart.screenHeight : chart.screenHeight;
    for (const box of [chart, chart.parentElement]) box.style.height = `${height}px`;
    Plotly.relayout(chart, { width, height, autosize: !width });
  }
}

/** Choose the height of rows so that the last page is not nearly empty; the chart fills the first. */
function layOutPages() {
  let [best, most] = [2.5, 0];
  sizeCharts(Math.floor(width));
  for (const row of [2.5, 3, 2, 3.5, 4, 1.5, 4.5, 5, 5.5, 6, 7, 8]) {
    root.style.setProperty("--row", `${row}px`);
    const [, fill] = fills();
    if (fill > most) [best, most] = [row, fill];
    if (fill > 0.6) break;
  }
  root.style.setProperty("--row", `${best}px`);
  sizeCharts(Math.floor(width), Math.min(150, Math.floor((1 - fills()[0]) * height)));
}

/** Lay the page out for paper, or for the screen again. */
function layOut(printed) {
  root.classList.toggle("paper", printed);
  if (printed) layOutPages();
  else sizeCharts(null);
}

window.addEventListener("beforeprint", () => layOut(true));
window.addEventListener("afterprint", () => layOut(false));
