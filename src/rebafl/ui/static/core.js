// What do all views share? Names of the libraries, questions to the server, the address, numbers as words, saving files.
"use strict";
const RF = { html: htm.bind(preact.h), ...preactHooks, render: preact.render };

RF.ask = async (question, body = {}) => {
  const answer = await fetch("/api/" + question, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body),
  });
  const value = await answer.json().catch(() => ({ error: "The server answered with status " + answer.status + "." }));
  if (!answer.ok) throw new Error(value.error || "The server answered with status " + answer.status + ".");
  return value;
};

RF.askCells = async (run, since) => {
  const answer = await fetch("/api/cells?" + new URLSearchParams({ run, since }));
  if (!answer.ok) throw new Error(await answer.text());
  return { from: Number(answer.headers.get("x-from")), bytes: new Uint8Array(await answer.arrayBuffer()) };
};

// The view is in the address, after '#', so that it can be kept as a bookmark and sent to others.
RF.place = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
RF.go = (changes, replace = true) => {
  const place = { ...RF.place(), ...changes };
  for (const key of Object.keys(place)) if (place[key] === null || place[key] === "" || place[key] === undefined) delete place[key];
  const hash = "#" + new URLSearchParams(place);
  if (hash === (location.hash || "#")) return;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
  dispatchEvent(new Event("place"));
};
RF.usePlace = () => {
  const [place, set] = RF.useState(RF.place());
  RF.useEffect(() => {
    const heard = () => set(RF.place());
    for (const name of ["place", "popstate", "hashchange"]) addEventListener(name, heard);
    return () => { for (const name of ["place", "popstate", "hashchange"]) removeEventListener(name, heard); };
  }, []);
  return place;
};

RF.percent = (value, digits = 2) => value === null || value === undefined ? "–" : value.toFixed(digits);
RF.duration = (seconds) => {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 90) return Math.round(seconds) + " s";
  return seconds < 5400 ? Math.round(seconds / 60) + " min" : (seconds / 3600).toFixed(1) + " h";
};
RF.bytes = (count) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return (unit && count < 100 ? count.toFixed(1) : Math.round(count)) + " " + units[unit];
};
RF.word = (value) => Array.isArray(value) ? "[" + value.join(", ") + "]" : value === null || value === undefined ? "" : String(value);

// Colours that can be told apart, also by people who see few of them, on light and dark paper.
RF.colours = ["#0072b2", "#d55e00", "#009e73", "#b5559b", "#8a6d00", "#3a9bd9", "#a23b2a", "#5b7f2b", "#6a5acd", "#7a7a7a"];
RF.colour = (index, count) => count <= RF.colours.length ? RF.colours[index] : `hsl(${Math.round((index * 137.5) % 360)} 55% 48%)`;
RF.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
RF.rgb = (text) => {
  const value = parseInt(text.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
};
RF.dark = matchMedia("(prefers-color-scheme: dark)");
RF.printing = matchMedia("print");
RF.useTheme = () => {
  const [theme, set] = RF.useState(0);
  RF.useEffect(() => {
    const heard = () => set((n) => n + 1);
    RF.dark.addEventListener("change", heard);
    RF.printing.addEventListener("change", heard);
    return () => { RF.dark.removeEventListener("change", heard); RF.printing.removeEventListener("change", heard); };
  }, []);
  return theme;
};
RF.useWidth = (ref) => {
  const [width, set] = RF.useState(0);
  RF.useEffect(() => {
    const look = () => ref.current && set(Math.floor(ref.current.clientWidth));
    look();
    const observer = new ResizeObserver(look);
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, []);
  return width;
};

RF.save = (name, blob) => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name.replace(/[^\w.-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
// A cell that a spreadsheet would take for a formula gets an apostrophe.
RF.csvCell = (value) => {
  const text = RF.word(value);
  const safe = /^[=+@\t\r]/.test(text) || (/^-/.test(text) && isNaN(Number(text))) ? "'" + text : text;
  return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
};
RF.saveCsv = (name, header, rows) => {
  const parts = [header.map(RF.csvCell).join(",") + "\n"];
  for (const row of rows) parts.push(row.map(RF.csvCell).join(",") + "\n");
  RF.save(name + ".csv", new Blob(parts, { type: "text/csv" }));
};
RF.xml = (text) => String(text).replace(/[&<>"']/g, (c) => "&#" + c.charCodeAt(0) + ";");
RF.saveSvg = (name, width, height, body) => {
  const text = `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" font-size="11"><rect width="100%" height="100%" fill="${RF.css("--paper")}"/>${body}</svg>`;
  RF.save(name + ".svg", new Blob([text], { type: "image/svg+xml" }));
};
RF.savePng = (name, canvas, title) => {
  const scale = canvas.width / Math.max(1, canvas.clientWidth || canvas.width), head = 26 * scale;
  const sheet = document.createElement("canvas");
  sheet.width = canvas.width;
  sheet.height = canvas.height + head;
  const pen = sheet.getContext("2d");
  pen.fillStyle = RF.css("--paper");
  pen.fillRect(0, 0, sheet.width, sheet.height);
  pen.fillStyle = RF.css("--ink");
  pen.font = `600 ${13 * scale}px system-ui, sans-serif`;
  pen.fillText(title, 8 * scale, 18 * scale);
  pen.drawImage(canvas, 0, head);
  sheet.toBlob((blob) => RF.save(name + ".png", blob));
};

// Beside every figure: as a picture, and what it shows as numbers.
RF.Saves = ({ title, png, svg, csv }) => RF.html`<span class="saves" role="group" aria-label=${"Save " + title}>
  ${png && RF.html`<button type="button" class="quiet" onClick=${png} aria-label=${"Save " + title + " as PNG"}>PNG</button>`}
  ${svg && RF.html`<button type="button" class="quiet" onClick=${svg} aria-label=${"Save " + title + " as SVG"}>SVG</button>`}
  ${csv && RF.html`<button type="button" class="quiet" onClick=${csv} aria-label=${"Save the data of " + title + " as CSV"}>CSV</button>`}
</span>`;

RF.Choice = ({ label, value, options, onChange }) => RF.html`<label class="choice"><span>${label}</span>
  <select value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${options.map(([name, text]) => RF.html`<option value=${name} selected=${name === value}>${text}</option>`)}
  </select></label>`;

RF.unpack = async (id) => {
  const element = document.getElementById(id);
  if (!element) return null;
  const bytes = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};
