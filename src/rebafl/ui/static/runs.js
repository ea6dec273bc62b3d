// Which runs are there? A table to filter, sort and choose from, the curves of those that are chosen, and a form for a new one.
"use strict";
(() => {
  const { html, useState, useEffect, useMemo, useRef } = RF;
  const XS = [["rounds", "rounds"], ["bytes", "bytes"], ["seconds", "seconds"]];
  const METRICS = [["accuracy", "accuracy"], ["loss", "loss"], ["diversity", "weight diversity"]];
  const WORDS = { accuracy: ["Accuracy", "percent"], loss: ["Loss", "mean cross entropy"], diversity: ["Weight diversity", "Λ"] };

  const xsOf = (run, x) => {
    if (x === "bytes") return RF.cumulated(run.bytes_up.map((up, i) => up + run.bytes_down[i]));
    return x === "seconds" ? RF.cumulated(run.seconds) : run.at || run.accuracy.map((_, i) => i + 1);
  };

  // Runs over each other; `runs` have curves, a name, a group and a label.
  RF.Overlay = ({ runs, place }) => {
    const x = place.x || "rounds", metric = place.metric || "accuracy", seeds = place.seeds !== "apart";
    const lines = runs.filter((run) => run.accuracy.length).map((run) => ({ label: run.label, groupLabel: run.groupLabel, group: run.group, xs: xsOf(run, x), ys: run[metric] }));
    const prepared = useMemo(() => RF.prepared(lines, seeds), [runs, x, metric, seeds]);
    if (!lines.length) return null;
    const [title, unit] = WORDS[metric], several = new Set(lines.map((line) => line.group)).size < lines.length;
    return html`<section class="card" data-overlay><${RF.Lines} title=${title + " of " + (lines.length === 1 ? lines[0].label : lines.length + " runs")} height=${340} marked=${metric === "accuracy"}
      prepared=${prepared} xLabel=${{ rounds: "round", bytes: "bytes, up and down", seconds: "seconds" }[x]} yLabel=${unit} xWords=${x === "bytes" ? RF.bytes : null}
      tools=${html`<span class="tools"><${RF.Choice} label="Over" value=${x} options=${XS} onChange=${(x) => RF.go({ x })} />
        <${RF.Choice} label="Show" value=${metric} options=${METRICS} onChange=${(metric) => RF.go({ metric })} />
        ${several && html`<${RF.Choice} label="Seeds" value=${seeds ? "band" : "apart"} options=${[["band", "as bands"], ["apart", "one by one"]]} onChange=${(seeds) => RF.go({ seeds })} />`}</span>`} /></section>`;
  };

  RF.labels = (rows, apart) => {
    const used = apart.filter((name) => name !== "seed" && rows.some((row) => String(row.settings[name]) !== String(rows[0].settings[name])));
    const words = (row, more) => [row.label, ...used.filter((n) => n !== "algorithm.kind" && row.settings[n] !== undefined && row.settings[n] !== null).map((n) => `${n.replace(/^algorithm\.|\.kind$/g, "")}=${RF.word(row.settings[n])}`), ...more].filter(Boolean).join(", ");
    return new Map(rows.map((row) => [row.name, { label: row.name, groupLabel: words(row, []) || row.name }]));
  };

  // Curves of the chosen runs, kept up to date.
  const useCurves = (names) => {
    const kept = useRef(new Map()), [version, show] = useState(0), key = names.join("\n");
    useEffect(() => {
      let on = true, timer = 0;
      for (const name of [...kept.current.keys()]) if (!names.includes(name)) kept.current.delete(name);
      const look = async () => {
        if (!names.length) { show((n) => n + 1); return; }
        try {
          const since = names.map((name) => (kept.current.get(name) || { accuracy: [] }).accuracy.length);
          const answers = await RF.ask("curves", { runs: names, since });
          RF.newsAt = performance.now();
          let news = !since.every((n) => n);
          for (const answer of answers) {
            const before = answer.from ? kept.current.get(answer.name) : null, merged = { ...answer };
            if (before) for (const name of ["accuracy", "loss", "diversity", "bytes_up", "bytes_down", "seconds"]) merged[name] = before[name].concat(answer[name]);
            if (answer.accuracy.length || !before) news = true;
            kept.current.set(answer.name, merged);
          }
          if (on && news) show((n) => n + 1);
        } catch (error) { console.warn(error.message); }
        if (on) timer = setTimeout(look, document.hidden ? 5000 : 1500);
      };
      look();
      return () => { on = false; clearTimeout(timer); };
    }, [key]);
    return { version, curves: names.map((name) => kept.current.get(name)).filter(Boolean) };
  };

  const FIXED = [["name", "run"], ["state", "state"], ["done", "rounds"], ["left", "time left"], ["last", "last"], ["second_half", "second half"], ["best", "best"]];
  const cellOf = (row, key) => (key in row && key !== "settings" ? row[key] : row.settings[key]);
  const compare = (key) => (a, b) => {
    const [x, y] = [cellOf(a, key), cellOf(b, key)];
    if (x === y) return 0;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
  };

  const Row = ({ row, apart, checked, onCheck }) => html`<tr class=${checked ? "chosen" : ""} data-run=${row.name}>
    <td><input type="checkbox" checked=${checked} aria-label=${"Overlay " + row.name} onChange=${onCheck} /></td>
    <th scope="row"><a href=${"#" + new URLSearchParams({ run: row.name })}>${row.name}</a>${row.problem && html`<div class="problem">${row.problem}</div>`}</th>
    <td><${RF.StateWord} state=${row.state} /></td>
    <td class="number"><span class="mini"><span style=${{ width: (row.rounds ? (100 * row.done) / row.rounds : 0) + "%" }}></span></span>${row.done} of ${row.rounds}</td>
    <td class="number">${row.left === null ? "" : RF.duration(row.left)}</td>
    <td class="number">${RF.percent(row.last)}</td><td class="number">${RF.percent(row.second_half)}</td><td class="number">${RF.percent(row.best)}</td>
    ${apart.map((name) => html`<td key=${name}>${RF.word(row.settings[name])}</td>`)}</tr>`;

  const Table = ({ table, place, chosen, onChosen }) => {
    const [shown, setShown] = useState(100), sort = place.by || "name", down = place.down === "1";
    const words = (place.filter || "").toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => [row.name, row.state, ...Object.entries(row.settings).map(([k, v]) => k + "=" + RF.word(v))].join(" ").toLowerCase();
    const rows = table.runs.filter((row) => { const all = text(row); return words.every((word) => all.includes(word)); }).sort(compare(sort));
    if (down) rows.reverse();
    const heads = [...FIXED, ...table.apart.map((name) => [name, name])];
    const all = rows.length > 0 && rows.every((row) => chosen.has(row.name));
    const flip = (name) => { const next = new Set(chosen); if (!next.delete(name)) next.add(name); onChosen(next); };
    return html`<section class="card"><header><h2>Runs</h2><label class="choice grow"><span>Filter</span><input type="search" placeholder="words of names, states, settings" value=${place.filter || ""} onInput=${(e) => RF.go({ filter: e.target.value })} /></label>
        <span class="note">${rows.length} of ${table.runs.length}</span>
        <${RF.Saves} title="runs" csv=${() => RF.saveCsv("runs", heads.map(([, title]) => title), rows.map((row) => heads.map(([key]) => cellOf(row, key))))} /></header>
      <div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="runs"><thead><tr>
        <th scope="col"><input type="checkbox" aria-label="Overlay all that are shown" checked=${all} onChange=${() => onChosen(all ? new Set() : new Set(rows.map((row) => row.name)))} /></th>
        ${heads.map(([key, title]) => html`<th key=${key} scope="col" aria-sort=${sort === key ? (down ? "descending" : "ascending") : "none"}><button type="button" class="sort" onClick=${() => RF.go({ by: key, down: sort === key && !down ? "1" : null })}>${title}${sort === key ? (down ? " ↓" : " ↑") : ""}</button></th>`)}</tr></thead>
      <tbody>${rows.slice(0, shown).map((row) => html`<${Row} key=${row.name} row=${row} apart=${table.apart} checked=${chosen.has(row.name)} onCheck=${() => flip(row.name)} />`)}</tbody></table></div>
      ${rows.length > shown && html`<p class="note"><button type="button" onClick=${() => setShown(rows.length)}>Show all ${rows.length}</button></p>`}
      ${!table.runs.length && html`<p class="note">There is no run below ${table.home} yet.</p>`}</section>`;
  };

  const Field = ({ field, value, onInput }) => {
    const id = "set-" + field.name;
    const input = field.choices.length
      ? html`<select id=${id} value=${value} onChange=${(e) => onInput(e.target.value)}><option value="">${field.default} (default)</option>${field.choices.map((choice) => html`<option value=${choice}>${choice}</option>`)}</select>`
      : html`<input id=${id} value=${value} placeholder=${field.default} list=${field.suggestions.length ? id + "-list" : null} onInput=${(e) => onInput(e.target.value)} />`;
    return html`<div class="field"><label for=${id}>${field.name}</label>${input}${field.suggestions.length > 0 && html`<datalist id=${id + "-list"}>${field.suggestions.map((s) => html`<option value=${s}></option>`)}</datalist>`}<small>${field.about}</small></div>`;
  };

  const StartForm = ({ onStarted }) => {
    const [form, setForm] = useState(null), [open, setOpen] = useState(false), [words, setWords] = useState({}), [kinds, setKinds] = useState({}), [name, setName] = useState(""), [problem, setProblem] = useState(""), [busy, setBusy] = useState(false);
    useEffect(() => { if (open && !form) RF.ask("form").then(setForm, (e) => setProblem(e.message)); }, [open]);
    const put = (key) => (value) => setWords((old) => ({ ...old, [key]: value }));
    const submit = async (event) => {
      event.preventDefault();
      setBusy(true);
      const chosen = { ...Object.fromEntries(Object.entries(kinds).filter(([, kind]) => kind)), ...words };
      try {
        const { run } = await RF.ask("start", { words: chosen, name });
        setProblem("");
        setOpen(false);
        onStarted(run);
      } catch (error) { setProblem(error.message); }
      setBusy(false);
    };
    const field = (f) => html`<${Field} key=${f.name} field=${f} value=${words[f.name] || ""} onInput=${put(f.name)} />`;
    const section = (s) => {
      const kind = kinds[s.name] || s.kind || "", part = s.kinds[kind] || { fields: [], about: "" };
      const pick = (value) => { setKinds({ ...kinds, [s.name]: value }); setWords(Object.fromEntries(Object.entries(words).filter(([key]) => !key.startsWith(s.name + ".")))); };
      return html`<details key=${s.name}><summary>${s.name}${kind ? ": " + kind : ""}</summary>
        ${s.kind && html`<div class="field"><label for=${"kind-" + s.name}>${s.name}</label><select id=${"kind-" + s.name} value=${kind} onChange=${(e) => pick(e.target.value)}>${Object.keys(s.kinds).map((k) => html`<option value=${k} selected=${k === kind}>${k}</option>`)}</select><small>${part.about}</small></div>`}
        ${part.fields.map(field)}</details>`;
    };
    if (!open) return html`<p class="start"><button type="button" class="primary" onClick=${() => setOpen(true)}>Start a run …</button></p>`;
    return html`<section class="card" data-form><header><h2>Start a run</h2></header>
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      ${form ? html`<form onSubmit=${submit}><div class="fields"><div class="field"><label for="run-name">name</label><input id="run-name" value=${name} placeholder="made of the settings" onInput=${(e) => setName(e.target.value)} /><small>of the run's folder</small></div>
        ${form.top.map(field)}</div>${form.sections.map(section)}
        <p class="note">What is left empty has its default. ${form.own_code ? "Settings may name own code, as module:Class." : "Own code, module:Class, is not accepted here."}</p>
        <p><button type="submit" class="primary" disabled=${busy}>Start</button> <button type="button" onClick=${() => setOpen(false)}>Cancel</button></p></form>` : html`<p class="note">One moment …</p>`}</section>`;
  };

  const Jobs = ({ table }) => {
    const known = new Set(table.runs.map((row) => row.name));
    const told = Object.entries(table.jobs).filter(([name, job]) => job.state === "failed" || (job.state === "running" && !known.has(name)));
    return told.length > 0 && html`<ul class="jobs">${told.map(([name, job]) => html`<li key=${name} class=${job.state === "failed" ? "problem" : "note"}>${name}: ${job.state === "failed" ? "it ended with an error. " : "it is starting. "}${job.says}</li>`)}</ul>`;
  };

  RF.RunsPage = ({ place }) => {
    const [table, setTable] = useState(null), [problem, setProblem] = useState(""), again = useRef(() => {});
    useEffect(() => {
      let on = true, timer = 0;
      const look = async () => {
        clearTimeout(timer);
        try { const found = await RF.ask("runs"); if (on) { setTable(found); setProblem(""); } } catch (error) { if (on) setProblem(error.message); }
        if (on) timer = setTimeout(look, document.hidden ? 10000 : 2500);
      };
      again.current = look;
      look();
      return () => { on = false; clearTimeout(timer); };
    }, []);
    const chosen = new Set((place.overlay || "").split("|").filter(Boolean));
    if (place.overlay === "*" && table) { chosen.clear(); for (const row of table.runs) chosen.add(row.name); }
    const names = table ? table.runs.map((row) => row.name).filter((name) => chosen.has(name)) : [];
    const { version, curves } = useCurves(names);
    const runs = useMemo(() => {
      if (!table) return [];
      const labels = RF.labels(table.runs.filter((row) => chosen.has(row.name)), table.apart);
      return curves.map((curve) => ({ ...curve, ...(labels.get(curve.name) || { label: curve.name }) }));
    }, [version, names.join("\n")]);
    if (!table) return html`<p class="card note">${problem || "Looking for runs …"}</p>`;
    const choose = (next) => RF.go({ overlay: next.size === table.runs.length && next.size > 1 ? "*" : [...next].join("|") });
    return html`<div>
      ${problem && html`<p class="problem card" role="alert">${problem}</p>`}
      <${Jobs} table=${table} />
      ${runs.length > 0 ? html`<${RF.Overlay} runs=${runs} place=${place} />` : table.runs.length > 0 && html`<p class="note hint">Choose runs in the table to lay their curves over each other.</p>`}
      <${Table} table=${table} place=${place} chosen=${chosen} onChosen=${choose} />
      ${table.paper && html`<p class="note"><a href="/paper" target="_blank" rel="noopener">Open the paper's results, ours beside the printed ones</a></p>`}
      <${StartForm} onStarted=${() => again.current()} /></div>`;
  };
})();
