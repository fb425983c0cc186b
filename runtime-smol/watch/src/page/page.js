"use strict";
// The page is drawn from one state at a time; nothing is kept between states.
const SVG = "http://www.w3.org/2000/svg";
const SAMPLES = 120, WIDTH = 480, HEIGHT = 130;
// Classes of the counts that a bar shows.
const PARTS = ["use", "idle", "new"];
// Buttons, in the order of the commands.
const COMMANDS = ["failover", "freeze"];
const id = (name) => document.getElementById(name);
const count = (number) => number.toLocaleString("en");

function element(name, attributes, text) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function shape(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function bar(server) {
  const parts = server.counts.slice(0, PARTS.length);
  const total = parts.reduce((sum, count) => sum + count, 0);
  const whole = Math.max(server.max, total, 1);
  const svg = shape("svg", { class: "bar", viewBox: `0 0 ${whole} 1`, preserveAspectRatio: "none" });
  svg.append(shape("rect", { class: "room", width: whole, height: 1 }));
  let x = 0;
  parts.forEach((width, index) => {
    svg.append(shape("rect", { class: PARTS[index], x, width, height: 1 }));
    x += width;
  });
  return svg;
}

function row(server, frozen, hasDetail) {
  const out = frozen || server.out;
  const tr = element("tr", {
    class: out ? "out" : server.type === "RSPrimary" ? "primary" : "",
    "data-address": server.address,
    "data-type": server.type,
  });
  const pool = element("td", { class: "pool" });
  pool.append(bar(server));
  const number = (text) => element("td", { class: "number" }, text);
  tr.append(
    element("td", {}, server.address),
    element("td", { class: "type" }, frozen ? `${server.type} (frozen)` : server.type),
    ...(hasDetail ? [number(server.detail ?? "–")] : []),
    pool,
    ...server.counts.map((value) => number(count(value))),
  );
  return tr;
}

function titles({ type, detail, bar, counts }) {
  const number = (text) => element("th", { class: "number" }, text);
  return [
    ...["server", type].map((text) => element("th", {}, text)),
    ...(detail === null ? [] : [number(detail)]),
    element("th", {}, bar),
    ...counts.map(number),
  ];
}

// `lines`: pairs of a class and the values of the samples. The newest sample is at the right edge.
function chart(svg, samples, lines) {
  const x = (index) => ((SAMPLES - samples.length + index) / (SAMPLES - 1)) * WIDTH;
  const highest = Math.max(1, ...lines.flatMap(([, values]) => values));
  const y = (value) => HEIGHT - 4 - (value / highest) * (HEIGHT - 10);
  const marks = samples.flatMap((sample, index) =>
    sample.failover ? [shape("line", { class: "mark", x1: x(index), x2: x(index), y1: 0, y2: HEIGHT })] : [],
  );
  const drawn = lines.map(([name, values]) =>
    shape("polyline", { class: name, points: values.map((value, index) => `${x(index)},${y(value)}`).join(" ") }),
  );
  svg.replaceChildren(...marks, ...drawn);
}

function draw(state) {
  const { samples } = state;
  const last = samples.at(-1) ?? { rate: 0, p50: 0, p99: 0 };
  id("status").textContent = `running for ${state.time.toFixed(0)} s`;
  id("totals").textContent =
    `${count(state.succeeded)} operations succeeded, ${count(state.other[0])} ${state.other[1]}, ${count(state.failed)} failed` +
    (state.connections === null ? "" : `; connections: ${state.connections}`);
  id("buttons").hidden = state.commands === null;
  COMMANDS.forEach((name, index) => {
    const text = state.commands?.[index] ?? "";
    id(name).textContent = text.charAt(0).toUpperCase() + text.slice(1);
  });
  id("titles").replaceChildren(...titles(state.titles));
  const hasDetail = state.titles.detail !== null;
  id("servers").replaceChildren(
    ...state.servers.map((server) => row(server, server.address === state.frozen, hasDetail)),
  );
  id("legend").replaceChildren(
    ...PARTS.flatMap((name, index) => [element("i", { class: name }), `${state.titles.counts[index]} `]),
  );
  id("rate").textContent = `${count(last.rate)} /s`;
  id("latency").textContent = `p50 ${count(last.p50)} µs, p99 ${count(last.p99)} µs`;
  chart(id("rates"), samples, [["rate", samples.map((sample) => sample.rate)]]);
  chart(id("latencies"), samples, [
    ["p50", samples.map((sample) => sample.p50)],
    ["p99", samples.map((sample) => sample.p99)],
  ]);
  id("events").replaceChildren(
    ...state.events.toReversed().map((event) => {
      const item = element("li", { class: `event-${event.kind}`, "data-ms": event.ms, "data-kind": event.kind });
      item.append(element("time", {}, `${event.at.toFixed(3)} s`), event.text);
      return item;
    }),
  );
}

const states = new EventSource("states");
states.onmessage = (message) => draw(JSON.parse(message.data));
states.onerror = () => (id("status").textContent = "the program has ended, or does not answer");
for (const name of COMMANDS) {
  id(name).addEventListener("click", () => fetch(name, { method: "POST" }));
}
