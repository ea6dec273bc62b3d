// What is there to see of one run? Forgetting beside its cause: class recall and class presence above who took part.
"use strict";
(() => {
  const { html, useState, useEffect, useMemo, useRef, useCallback } = RF;
  const COLUMNS = ["accuracy", "loss", "diversity", "bytes_up", "bytes_down", "seconds", "updated", "discarded", "epsilon", "chosen", "answered", "recall"];
  const STATE_CLASSES = ["not-chosen", "away", "answered", "late", "lost", "refused", "spent"];

  // All that is known of a run; rounds are appended as they come.
  RF.RunData = class {
    constructor() { Object.assign(this, { rounds: null, cells: new Uint8Array(0), cellRounds: 0, reasons: new Map(), version: 0, cache: {} }); }
    take(answer) {
      const { rounds } = answer;
      Object.assign(this, answer.details ? { details: answer.details, states: answer.states } : {}, { facts: answer.facts, version: this.version + 1 });
      if (rounds.from === 0 || !this.rounds) {
        this.rounds = { troubles: [], others: {} };
        for (const name of COLUMNS) this.rounds[name] = [];
        this.rounds.presence = rounds.presence ? [] : null;
        this.rounds.all_troubles = 0;
        this.rounds.at = rounds.at;
        this.reasons = new Map();
        this.cache = {};
      }
      for (const name of COLUMNS) this.rounds[name] = this.rounds[name].concat(rounds[name] || []);
      if (rounds.presence) this.rounds.presence = (this.rounds.presence || []).concat(rounds.presence);
      for (const [name, values] of Object.entries(rounds.others || {})) this.rounds.others[name] = (this.rounds.others[name] || []).concat(values);
      const troubles = (rounds.troubles || []).map(([round, client, kind, reason]) => ({ round, client, kind, reason: rounds.reasons[reason] }));
      for (const trouble of troubles) this.reasons.set(trouble.round + " " + trouble.client, trouble);
      this.rounds.troubles = this.rounds.troubles.concat(troubles);
      this.rounds.all_troubles += rounds.all_troubles || 0;
    }
    takeCells({ from, bytes }) {
      const { clients } = this.facts, rounds = from + bytes.length / Math.max(1, clients);
      if (this.cells.length < rounds * clients) { // room for what will come
        const larger = new Uint8Array(Math.max(rounds, Math.min(this.facts.rounds, rounds * 2)) * clients);
        larger.set(this.cells.subarray(0, from * clients));
        this.cells = larger;
      }
      this.cells.set(bytes, from * clients);
      this.cellRounds = rounds;
      this.version += 1;
    }
    get count() { return this.rounds ? (this.rounds.at ? this.facts.done : this.rounds.accuracy.length) : 0; }
    get xs() { return this.rounds.at || this.rounds.accuracy.map((_, i) => i + 1); }
  };

  const orders = {
    number: (data) => Int32Array.from({ length: data.facts.clients }, (_, c) => c),
    class: (data) => sorted(data, (c) => mainClass(data, c)),
    group: (data) => sorted(data, (c) => c % data.facts.groups),
    availability: (data) => { const often = answeredBy(data); return sorted(data, (c) => -often[c]); },
  };
  const sorted = (data, key) => {
    const keys = Float64Array.from({ length: data.facts.clients }, (_, c) => key(c));
    return orders.number(data).sort((a, b) => keys[a] - keys[b] || a - b);
  };
  const mainClass = (data, client) => {
    const { counts } = data.details.holdings;
    return counts && counts[client] ? counts[client].indexOf(Math.max(...counts[client])) : 0;
  };
  const answeredBy = (data) => {
    const { clients } = data.facts, often = new Uint32Array(clients);
    for (let r = 0; r < data.cellRounds; r += 1) for (let c = 0; c < clients; c += 1) if (data.cells[r * clients + c] === 2) often[c] += 1;
    return often;
  };

  const matrix = (rows, rounds, ramp, names, scale) => ({
    kind: "values", rows: names.length, cols: rounds.length, ramp, label: (r) => names[r],
    value: (r, c) => (rounds[c][r] === null || rounds[c][r] === undefined ? NaN : rounds[c][r] * scale),
  });

  const Legend = ({ data }) => html`<ul class="legend states">${data.states.map(([name, about], i) => html`<li key=${name} title=${about}>
    <span class=${"swatch state-" + STATE_CLASSES[i]}></span>${name}</li>`)}</ul>`;
  const RampLegend = ({ name, low, high }) => html`<span class="ramp-legend"><span>${low}</span><span class=${"ramp ramp-" + name}></span><span>${high}</span></span>`;

  const holds = (data, client) => {
    const { counts, picked, source } = data.details.holdings;
    const row = counts && (picked ? counts[picked.indexOf(client)] : counts[client]);
    if (!row) return source === "withheld" ? "what it holds is withheld" : "";
    const some = row.map((n, i) => [n, i]).filter(([n]) => n).sort((a, b) => b[0] - a[0]);
    return "holds " + (some.slice(0, 4).map(([n, i]) => `${data.facts.classes[i]} ${n}`).join(", ") || "nothing that is known") + (some.length > 4 ? ", …" : "");
  };

  // What the cursor is on, in words.
  const inWords = (data, order, model, point) => {
    if (!point) return "Point at a map, or choose one with Tab and move with the arrow keys; drag to zoom, + and − zoom, Escape shows all.";
    const { facts, rounds } = data, round = point.round;
    const at = rounds.at ? Math.min(rounds.accuracy.length - 1, Math.floor((round / data.count) * rounds.accuracy.length)) : round;
    const general = `Round ${round + 1}: accuracy ${RF.percent(rounds.accuracy[at])}, ${rounds.answered[at] ?? "–"} of ${rounds.chosen[at] ?? "–"} chosen clients answered`
      + (rounds.discarded[at] ? `; the new model was discarded: ${rounds.discarded[at]}` : rounds.updated[at] ? "" : "; the model is unchanged");
    if (point.map === "clients" && model.kind === "cells") {
      const client = order[point.row], state = data.cells[round * facts.clients + client], trouble = data.reasons.get(round + 1 + " " + client);
      const group = facts.groups > 1 ? `, group ${client % facts.groups}` : "";
      return `${general}. Client ${client}${group}: ${data.states[state][0]}${trouble ? ` (${trouble.reason})` : ""}; ${holds(data, client)}.`;
    }
    if (point.map === "clients") {
      const column = Math.min(model.cols - 1, Math.floor((round / data.count) * model.cols)), i = column * model.rows + point.row;
      return `${general}. Clients of this bin: ${Math.round(model.share[i] / 2.55)} % answered${model.worst[i] ? `, some ${data.states[model.worst[i]][0]}` : ""}.`;
    }
    if (point.map === "holdings") return "";
    const present = rounds.presence ? rounds.presence[at][point.row] : null, recall = rounds.recall[at][point.row];
    const share = present === null || present === undefined ? "presence unknown" : `${(100 * present).toFixed(1)} % of its data present`;
    return `${general}. ${facts.classes[point.row]}: ${share}, recall ${RF.percent(recall, 1)} %.`;
  };

  const Zoom = ({ sync }) => html`<span class="zoom" role="group" aria-label="Rounds shown">
    <button type="button" class="quiet" aria-label="Earlier rounds" onClick=${() => sync.pan(-0.5)}>◀</button>
    <button type="button" class="quiet" aria-label="Zoom in" onClick=${() => sync.zoom(0.5)}>+</button>
    <button type="button" class="quiet" aria-label="Zoom out" onClick=${() => sync.zoom(2)}>−</button>
    <button type="button" class="quiet" aria-label="Later rounds" onClick=${() => sync.pan(0.5)}>▶</button>
    <button type="button" class="quiet" onClick=${() => sync.show(0, sync.rounds)}>all rounds</button></span>`;

  const SORTS = [["class", "class they hold most of"], ["number", "number"], ["group", "group"], ["availability", "availability"]];

  const clientMap = (data, order) => {
    if (data.map && data.map.kind === "bins") {
      const { rows, columns } = data.map, size = rows * columns;
      return { kind: "bins", rows, cols: columns, idle: data.facts.idle, share: data.cells.subarray(0, size), worst: data.cells.subarray(size, 2 * size), label: (r) => "bin " + r };
    }
    return { kind: "cells", rows: data.facts.clients, cols: data.cellRounds, idle: data.facts.idle, cells: data.cells, order, cache: data.cache, label: (r) => "client " + order[r] };
  };

  const Heart = ({ data, sync, place }) => {
    const { facts, rounds } = data, heats = useRef({}), [point, setPoint] = useState(null), info = useRef(null);
    const bins = data.map && data.map.kind === "bins";
    const sort = bins ? "class" : orders[place.sort] ? place.sort : data.details.holdings.counts && !data.details.holdings.picked ? "class" : "number";
    const order = useMemo(() => orders[sort](data), [sort, sort === "availability" ? data.version : 0, data.details, facts.clients]);
    const model = useMemo(() => clientMap(data, order), [order, data.version]);
    const recall = useMemo(() => matrix(null, rounds.recall, "recall", facts.classes, 0.01), [data.version]);
    const presence = useMemo(() => rounds.presence && matrix(null, rounds.presence, "presence", facts.classes, 1), [data.version]);
    const onPoint = useCallback((where) => setPoint(where), []);
    const ready = (name) => (heat) => { heats.current[name] = heat; RF.heats = heats.current; };
    const save = (name, title) => ({ png: () => RF.savePng(`${facts.name} ${title}`, heats.current[name].canvas, `${facts.name}: ${title}`), svg: () => heats.current[name].svg(`${facts.name}: ${title}`) });
    const classCsv = (title, table) => RF.saveCsv(`${facts.name} ${title}`, ["round", ...facts.classes], table.map((row, i) => [data.xs[i], ...row]));
    const mapCsv = () => {
      if (bins) return RF.saveCsv(`${facts.name} participation`, ["column", "row", "share answered", "worst"], Array.from(model.share, (s, i) => [Math.floor(i / model.rows), i % model.rows, (s / 255).toFixed(3), model.worst[i] ? data.states[model.worst[i]][0] : ""]));
      const names = data.states.map(([name]) => name);
      return RF.saveCsv(`${facts.name} participation`, ["client", ...data.xs.map((r) => "round " + r)], Array.from(order, (c) => [c, ...Array.from({ length: data.cellRounds }, (_, r) => names[data.cells[r * facts.clients + c]])]));
    };
    const classHeight = RF.heatHeight(facts.classes.length, false, 14, 320);
    const source = data.details.holdings.source, why = { withheld: "Class counts are withheld by this run's settings", "not recorded": "This run did not write down who holds what", "not counted": "This run has too many clients to count what each holds" }[source] || "Nothing is known yet of what clients hold";
    return html`<section class="card heart" aria-labelledby="heart-title">
      <header><h2 id="heart-title">Who took part, and what was forgotten</h2><${Zoom} sync=${sync} />
        ${!bins && html`<${RF.Choice} label="Clients by" value=${sort} options=${SORTS.filter(([name]) => name !== "group" || facts.groups > 1)} onChange=${(sort) => RF.go({ sort })} />`}</header>
      <div class="map-title"><h3>Class recall</h3><${RampLegend} name="recall" low="0 %" high="100 %" /><${RF.Saves} title="class recall" ...${save("recall", "class recall")} csv=${() => classCsv("class recall", rounds.recall)} /></div>
      <${RF.Heat} name="recall" model=${recall} sync=${sync} height=${classHeight} onPoint=${onPoint} onReady=${ready("recall")} label=${`Class recall: ${facts.classes.length} classes by ${data.count} rounds`} />
      <div class="map-title"><h3>Class presence</h3>${presence && html`<${RampLegend} name="presence" low="none of its data" high="all" /><${RF.Saves} title="class presence" ...${save("presence", "class presence")} csv=${() => classCsv("class presence", rounds.presence)} />`}</div>
      ${presence ? html`<${RF.Heat} name="presence" model=${presence} sync=${sync} height=${classHeight} onPoint=${onPoint} onReady=${ready("presence")} label=${`Class presence: share of each class's data that took part, ${facts.classes.length} classes by ${data.count} rounds`} />`
        : html`<p class="note">${why}, so that the share of a class that was present cannot be shown.</p>`}
      <div class="map-title"><h3>Participation</h3><${RF.Saves} title="participation" ...${save("clients", "participation")} csv=${mapCsv} /></div>
      <${RF.Heat} name="clients" model=${model} sync=${sync} axis=${true} zoomRows=${true} height=${RF.heatHeight(model.rows, true, 16, 420)} onPoint=${onPoint} onReady=${ready("clients")} label=${`Participation: ${facts.clients} clients by ${data.count} rounds`} />
      <${Legend} data=${data} />
      <p class="info" ref=${info} aria-live="polite" data-info>${inWords(data, order, model, point)}</p>
    </section>`;
  };

  const Holdings = ({ data, place }) => {
    const { facts } = data, { counts, picked, source, known } = data.details.holdings, heat = useRef();
    const sort = orders[place.sort] && !picked ? place.sort : "class";
    const order = useMemo(() => picked ? Int32Array.from({ length: counts.length }, (_, i) => i).sort((a, b) => mainClass(data, a) - mainClass(data, b) || a - b) : orders[sort](data), [data.details, sort]);
    const sync = useMemo(() => RF.makeSync(order.length), [order]);
    const most = useMemo(() => (counts ? counts.reduce((top, row) => Math.max(top, ...row), 1) : 1), [counts]);
    const [point, setPoint] = useState(null), onPoint = useCallback((p) => setPoint(p), []);
    if (!counts) return null;
    const model = { kind: "values", rows: facts.classes.length, cols: order.length, ramp: "presence", label: (r) => facts.classes[r], value: (r, c) => (counts[order[c]][r] ? 0.12 + (0.88 * counts[order[c]][r]) / most : 0) };
    const title = "who holds what", client = point && (picked ? picked[order[point.round]] : order[point.round]);
    return html`<section class="card"><header><h2>Who holds what</h2><${RampLegend} name="presence" low="none" high=${most + " samples"} />
      <${RF.Saves} title=${title} png=${() => RF.savePng(`${facts.name} ${title}`, heat.current.canvas, `${facts.name}: ${title}`)} svg=${() => heat.current.svg(`${facts.name}: ${title}`)}
        csv=${() => RF.saveCsv(`${facts.name} ${title}`, ["client", ...facts.classes], counts.map((row, c) => [picked ? picked[c] : c, ...row]))} /></header>
      <${RF.Heat} name="holdings" model=${model} sync=${sync} height=${RF.heatHeight(facts.classes.length, false, 14, 320)} onPoint=${onPoint} onReady=${(it) => { heat.current = it; }} label=${`Who holds what: ${facts.classes.length} classes by ${order.length} clients`} />
      <p class="info">${point ? `Client ${client}: ${facts.classes[point.row]} ${counts[order[point.round]][point.row]}; in all ${counts[order[point.round]].reduce((a, b) => a + b, 0)}.` : `Clients from left to right, in the order of the map. ${source === "uploads" ? `Known from uploads of ${known} of ${facts.clients} clients.` : ""}`}</p></section>`;
  };

  const Small = ({ data, sync }) => {
    const { rounds } = data, move = useMemo(() => {
      const act = (index) => { act.busy = true; sync.set({ cursor: index === null || index === undefined ? null : data.xs[index] - 1 }); act.busy = false; };
      return act;
    }, [sync]);
    const one = (title, yLabel, lines, more = {}) => html`<${RF.Lines} title=${title} height=${190} xLabel="round" yLabel=${yLabel} sync=${sync} onCursor=${move}
      prepared=${RF.prepared(lines.map(([label, ys], i) => ({ label, group: label, xs: data.xs, ys, dash: i ? [6, 5] : undefined })), false)} legend=${lines.length > 1} ...${more} />`;
    return html`<section class="card"><header><h2>Round by round</h2></header><div class="grid">
      ${one("Accuracy", "percent", [["accuracy", rounds.accuracy], ...Object.entries(rounds.others).map(([name, ys]) => [name, ys])], { marked: true })}
      ${one("Loss", "mean cross entropy", [["loss", rounds.loss]])}
      ${one("Clients", "clients", [["chosen", rounds.chosen], ["answered", rounds.answered]])}
      ${one("Weight diversity", "Λ", [["diversity", rounds.diversity]])}
      ${one("Bytes so far", "", [["up", RF.cumulated(rounds.bytes_up)], ["down", RF.cumulated(rounds.bytes_down)]], { yWords: RF.bytes, gutter: 64 })}
      ${one("Seconds per round", "seconds", [["seconds", rounds.seconds]])}
      ${rounds.epsilon.some((e) => e !== null && e !== undefined) && one("Given away so far", "ε", [["ε", rounds.epsilon]])}
    </div></section>`;
  };

  const Troubles = ({ data }) => {
    const [filter, setFilter] = useState(""), [all, setAll] = useState(false), { troubles, all_troubles } = data.rounds;
    if (!troubles.length) return html`<section class="card"><header><h2>Refused and missing</h2></header><p class="note">Every upload that was expected arrived and was used, but for those that a simulation loses on purpose.</p></section>`;
    const word = filter.toLowerCase();
    const matching = troubles.filter((t) => !word || `${t.round} client ${t.client} ${t.kind} ${t.reason}`.toLowerCase().includes(word)).reverse();
    return html`<section class="card"><header><h2>Refused and missing</h2><label class="choice"><span>Filter</span><input type="search" value=${filter} onInput=${(e) => setFilter(e.target.value)} /></label>
      <${RF.Saves} title="refused and missing" csv=${() => RF.saveCsv(`${data.facts.name} refused and missing`, ["round", "client", "what", "reason"], troubles.map((t) => [t.round, t.client, t.kind, t.reason]))} /></header>
      <div class="scroll" tabindex="0" role="region" aria-label="Refused and missing uploads"><table><thead><tr><th scope="col" class="number">round</th><th scope="col" class="number">client</th><th scope="col">what</th><th scope="col">reason</th></tr></thead>
      <tbody>${matching.slice(0, all ? 5000 : 100).map((t) => html`<tr key=${t.round + " " + t.client}><td class="number">${t.round}</td><td class="number">${t.client}</td><td>${t.kind}</td><td>${t.reason}</td></tr>`)}</tbody></table></div>
      <p class="note">${matching.length} of ${all_troubles}, the latest first. ${matching.length > 100 && !all && html`<button type="button" onClick=${() => setAll(true)}>Show more</button>`}</p></section>`;
  };

  const Prototypes = ({ facts, prototypes }) => {
    const canvas = useRef(), [shown, setShown] = useState(null), theme = RF.useTheme(), holder = useRef(), width = RF.useWidth(holder);
    const count = prototypes.rounds.length, at = Math.min(shown ?? count - 1, count - 1);
    useEffect(() => {
      if (!width) return;
      const scale = devicePixelRatio || 1, w = width, h = 320, pen = canvas.current.getContext("2d");
      canvas.current.width = w * scale;
      canvas.current.height = h * scale;
      pen.scale(scale, scale);
      const known = prototypes.places.flat().filter(Boolean), xs = known.map(([x]) => x), ys = known.map(([, y]) => y);
      const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
      const to = ([x, y]) => [40 + ((x - left) / (right - left || 1)) * (w - 120), h - 20 - ((y - low) / (high - low || 1)) * (h - 40)];
      facts.classes.forEach((name, k) => {
        const path = prototypes.places.slice(0, at + 1).map((places) => places[k]).filter(Boolean).map(to), here = prototypes.places[at][k];
        pen.strokeStyle = pen.fillStyle = RF.colour(k, facts.classes.length);
        pen.globalAlpha = 0.35;
        pen.beginPath();
        path.forEach(([x, y], i) => pen[i ? "lineTo" : "moveTo"](x, y));
        pen.stroke();
        pen.globalAlpha = 1;
        if (!here) return;
        const [x, y] = to(here);
        pen.beginPath();
        pen.arc(x, y, 5, 0, 7);
        pen.fill();
        pen.fillStyle = RF.css("--ink");
        pen.font = "11px system-ui, sans-serif";
        pen.fillText(name, x + 8, y + 4);
      });
    }, [at, theme, width, prototypes]);
    const title = "prototypes";
    const rows = () => prototypes.places.flatMap((places, i) => places.map((place, k) => [prototypes.rounds[i], facts.classes[k], ...(place || ["", ""])]));
    return html`<section class="card"><header><h2>Prototypes</h2><label class="choice"><span>After round ${prototypes.rounds[at]}</span>
      <input type="range" min="0" max=${count - 1} value=${at} onInput=${(e) => setShown(Number(e.target.value))} /></label>
      <${RF.Saves} title=${title} png=${() => RF.savePng(`${facts.name} ${title}`, canvas.current, `${facts.name}: ${title}`)} csv=${() => RF.saveCsv(`${facts.name} ${title}`, ["round", "class", "x", "y"], rows())}
        svg=${() => RF.saveSvg(`${facts.name} ${title}`, width, 320, `<image width="${width}" height="320" href="${canvas.current.toDataURL()}"/>`)} /></header>
      <div ref=${holder}><canvas ref=${canvas} role="img" aria-label="The classes' prototypes in two dimensions" style=${{ width: "100%", height: "320px" }}></canvas></div>
      <p class="note">In the two directions in which the prototypes of all rounds differ most; lines show where each came from. A class that nobody shared in a round has none.</p></section>`;
  };

  const Nodes = ({ id }) => {
    const [status, setStatus] = useState(null), [problem, setProblem] = useState("");
    useEffect(() => {
      let on = true;
      const look = () => RF.ask("nodes", { run: id }).then((s) => on && (setStatus(s), setProblem("")), (e) => on && setProblem(e.message)).finally(() => on && (timer = setTimeout(look, 3000)));
      let timer = 0;
      look();
      return () => { on = false; clearTimeout(timer); };
    }, [id]);
    if (problem) return html`<section class="card"><header><h2>Nodes</h2></header><p class="problem">${problem}</p></section>`;
    if (!status) return null;
    const nodes = Object.entries(status.nodes);
    return html`<section class="card" data-nodes><header><h2>Nodes</h2><span>server: ${status.server.process}${status.server.answers ? "" : ", it does not answer"}</span></header>
      <ul class="nodes">${nodes.map(([number, node]) => html`<li key=${number} class=${node.connected ? "on" : "off"}><b>node ${number}</b><span>process ${node.process}</span><span>${node.connected ? "connected" : "not connected"}</span></li>`)}</ul>
      ${status.problem && html`<p class="problem">${status.problem}</p>`}</section>`;
  };

  const Pairs = ({ title, values, open }) => html`<details open=${open}><summary>${title}</summary><div class="scroll" tabindex="0" role="region" aria-label=${title}><table class="pairs"><tbody>
    ${Object.entries(values).map(([name, value]) => html`<tr key=${name}><th scope="row">${name}</th><td>${RF.word(value)}</td></tr>`)}</tbody></table></div></details>`;

  RF.StateWord = ({ state }) => html`<span class=${"badge badge-" + state}>${state}</span>`;

  RF.Progress = ({ done, rounds, progress, left, state }) => {
    const part = progress && progress.of && progress.stage === "training" ? progress.done / progress.of : 0, share = rounds ? Math.min(1, (done + (state === "running" ? part : 0)) / rounds) : 0;
    return html`<div class="progress"><div class="bar" role="progressbar" aria-label="Rounds finished" aria-valuemin="0" aria-valuemax=${rounds} aria-valuenow=${done}><div style=${{ width: 100 * share + "%" }}></div></div>
      <span>${done} of ${rounds} rounds${progress && state !== "finished" ? `; round ${progress.round}: ${progress.stage === "training" ? `client ${progress.done} of ${progress.of}` : progress.stage}` : ""}${left !== null && left !== undefined && state === "running" ? `; about ${RF.duration(left)} left` : ""}</span></div>`;
  };

  const Head = ({ data, live, act, problem }) => {
    const { facts } = data, s = facts.summary;
    return html`<section class="card head"><header><h1>${facts.name}</h1><${RF.StateWord} state=${facts.state} /><span class="kind">${facts.kind}, ${facts.clients} clients</span>
      ${live && html`<span class="actions">
        ${facts.state === "running" && html`<button type="button" onClick=${() => act("stop")}>Stop after this round</button>`}
        ${facts.state === "stopping" && html`<button type="button" disabled>Stopping after this round …</button>`}
        ${["stopped", "interrupted", "failed"].includes(facts.state) && html`<button type="button" class="primary" onClick=${() => act("resume")}>Resume</button>`}</span>`}</header>
      <${RF.Progress} ...${facts} />
      ${(problem || facts.problem) && html`<p class="problem" role="alert">${problem || facts.problem}</p>`}
      ${s && html`<dl class="numbers"><div><dt>last</dt><dd>${RF.percent(s.last)}</dd></div><div><dt>second half</dt><dd>${RF.percent(s.second_half)}</dd></div>
        <div><dt>${s.last_ten_name}</dt><dd>${RF.percent(s.last_ten)}</dd></div><div><dt>best, on the test set</dt><dd>${RF.percent(s.best)} <small>round ${s.best_round}</small></dd></div></dl>`}
      ${facts.warnings.map((text) => html`<p class="warning" key=${text}>${text}</p>`)}
      ${Object.entries(facts.links).map(([file, title]) => html`<p key=${file}><a href=${"/page?" + new URLSearchParams({ run: facts.id, file })} target="_blank" rel="noopener">Open the ${title}</a></p>`)}
      ${(data.notes || []).map((text) => html`<p class="note binned" key=${text}>${text}</p>`)}</section>`;
  };

  RF.RunViews = ({ data, live, place, act, problem, prototypes }) => {
    const sync = useMemo(() => RF.makeSync(data.count), [data.facts.id]);
    RF.sync = sync;
    useEffect(() => { if (sync.rounds !== data.count) sync.grow(data.count); }, [data.version]);
    if (!data.count) return html`<div><${Head} data=${data} live=${live} act=${act} problem=${problem} /><p class="card note">No round is finished yet.</p></div>`;
    return html`<div class="run">
      <${Head} data=${data} live=${live} act=${act} problem=${problem} />
      <${Heart} data=${data} sync=${sync} place=${place} />
      ${live && data.facts.kind === "federation" && html`<${Nodes} id=${data.facts.id} />`}
      <${Small} data=${data} sync=${sync} />
      <${Holdings} data=${data} place=${place} />
      ${prototypes && html`<${Prototypes} facts=${data.facts} prototypes=${prototypes} />`}
      <${Troubles} data=${data} />
      <section class="card"><header><h2>Settings and environment</h2></header><p>Run it again: <code>${data.details.command}</code></p>
        <${Pairs} title="Settings" values=${data.details.settings} open=${!live} /><${Pairs} title="Environment" values=${data.details.environment} open=${!live} /></section>
    </div>`;
  };

  // A run on the server, followed while it is looked at.
  RF.RunPage = ({ id, place }) => {
    const data = useRef(new RF.RunData()), [, show] = useState(0), [problem, setProblem] = useState(""), [prototypes, setPrototypes] = useState(null);
    useEffect(() => {
      let on = true, timer = 0;
      data.current = new RF.RunData();
      const look = async () => {
        try {
          const before = data.current.count, known = data.current.details ? data.current.details.holdings.known : undefined, answer = await RF.ask("run", { run: id, since: before, known });
          if (!on) return;
          const fresh = answer.rounds.accuracy.length > 0 || !data.current.facts;
          data.current.take(answer);
          if (fresh && data.current.count) {
            const began = performance.now();
            data.current.takeCells(await RF.askCells(id, answer.rounds.from));
            RF.lastCells = performance.now() - began;
            if (answer.facts.has_prototypes) RF.ask("prototypes", { run: id }).then((p) => on && setPrototypes(p));
          }
          setProblem("");
          show((n) => n + 1);
          RF.data = data.current;
        } catch (error) {
          if (on) setProblem(error.message);
        }
        const busy = data.current.facts && ["running", "stopping"].includes(data.current.facts.state);
        if (on) timer = setTimeout(look, document.hidden ? 5000 : busy ? 1200 : 2500);
      };
      look();
      return () => { on = false; clearTimeout(timer); };
    }, [id]);
    const act = (what) => RF.ask(what, { run: id }).then(() => setProblem(""), (error) => setProblem(error.message));
    if (!data.current.facts) return html`<p class="card note">${problem || "Reading the run …"}</p>`;
    return html`<${RF.RunViews} data=${data.current} live=${true} place=${place} act=${act} problem=${problem} prototypes=${prototypes} />`;
  };
})();
