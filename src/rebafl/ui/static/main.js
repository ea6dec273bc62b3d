// Which page is shown? The runs or one of them, from the server; or those that a report brings with it.
"use strict";
(() => {
  const { html, useState, useEffect, useRef } = RF;

  const Live = () => {
    const place = RF.usePlace();
    useEffect(() => {
      document.title = place.run ? place.run + " · rebafl" : "rebafl";
      scrollTo(0, 0);
    }, [place.run]);
    return html`<${Frame} back=${place.run && html`<a href="#">All runs</a>`}>
      ${place.run ? html`<${RF.RunPage} key=${place.run} id=${place.run} place=${place} />` : html`<${RF.RunsPage} place=${place} />`}</${Frame}>`;
  };

  const Frame = ({ back, children, foot }) => html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>Skip to the views</a>
    <header class="top"><span class="brand">rebafl</span><nav aria-label="Pages">${back}</nav></header><main id="main" tabindex="-1">${children}</main>${foot}`;

  // A report: the same views, of what lies in the file itself.
  const Report = ({ report }) => {
    const place = RF.usePlace(), several = report.runs.length > 1;
    const overlay = report.runs.map((run) => ({ ...run.rounds, name: run.facts.id, label: run.facts.name, group: run.group, groupLabel: run.facts.name }));
    return html`<${Frame} foot=${html`<footer><p>Made ${report.made} by rebafl ${report.version}: <code>${report.command}</code></p></footer>`}>
      <h1 class="report-title">${report.title}</h1>
      ${several && html`<${RF.Overlay} runs=${overlay} place=${place} />`}
      ${report.runs.map((run) => html`<article key=${run.facts.id}>${run.brief
        ? html`<section class="card"><header><h2>${run.facts.name}</h2></header><p class="note">last ${RF.percent(run.facts.summary.last)}, second half ${RF.percent(run.facts.summary.second_half)}, best ${RF.percent(run.facts.summary.best)}. ${run.notes.join(" ")}</p></section>`
        : html`<${RF.RunViews} data=${run.data} place=${place} prototypes=${run.prototypes} />`}</article>`)}</${Frame}>`;
  };

  const openReport = async () => {
    const report = JSON.parse(new TextDecoder().decode(await RF.unpack("payload")));
    for (const [number, run] of report.runs.entries()) {
      if (run.brief) continue;
      run.data = Object.assign(new RF.RunData(), { map: run.map, notes: run.notes });
      run.data.take({ facts: run.facts, rounds: run.rounds, details: run.details, states: report.states });
      const cells = await RF.unpack("cells-" + number);
      if (run.map.kind === "bins") run.data.cells = cells;
      else run.data.takeCells({ from: 0, bytes: cells });
      RF.data = run.data;
    }
    RF.render(html`<${Report} report=${report} />`, document.getElementById("app"));
  };

  const begin = () => {
    if (document.getElementById("payload")) { openReport(); return; }
    const address = new URL(location.href);
    if (address.searchParams.has("token")) { // it is used up, and nobody need see it
      address.searchParams.delete("token");
      history.replaceState(null, "", address);
    }
    RF.render(html`<${Live} />`, document.getElementById("app"));
  };
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", begin); else begin();
})();
