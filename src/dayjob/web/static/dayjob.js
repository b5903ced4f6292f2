// The console in the browser: theme, times, live regions, actions, selection, keyboard. Pages work without it; acting needs it.
"use strict";
(() => {
  const $ = (query, from = document) => from.querySelector(query);
  const $$ = (query, from = document) => [...from.querySelectorAll(query)];
  const make = (tag, values) => Object.assign(document.createElement(tag), values);
  const on = (what, listener, from = document) => from.addEventListener(what, listener);

  // Settings of this reader. They are lost if the browser cannot store them, as in a private window.
  let kept = {};
  try { kept = Object(JSON.parse(localStorage.getItem("dayjob"))); } catch { /* use the defaults */ }
  const keep = (key, value) => {
    kept[key] = value;
    try { localStorage.setItem("dayjob", JSON.stringify(kept)); } catch { /* not stored */ }
    dress();
  };
  const dress = () => {
    const { dataset } = document.documentElement;
    for (const key of ["theme", "density"]) kept[key] ? dataset[key] = kept[key] : delete dataset[key];
  };
  dress();

  // Relative times are updated every second, by the server's clock.
  let skew = 0;
  const zone = () => kept.zone === "utc" ? { timeZone: "UTC" } : {};
  const zoneName = (at) => new Intl.DateTimeFormat("en-GB", { timeZoneName: "short", ...zone() })
    .formatToParts(new Date(at * 1000)).find(({ type }) => type === "timeZoneName").value;
  const span = (s) => s < 120 ? `${Math.max(0, s).toFixed(0)} s` : s < 7200 ? `${(s / 60).toFixed(0)} min`
    : s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${Math.round(s / 86400).toLocaleString("en")} days`;
  const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };
  // As clock() in charts/scale.py: the day alone at midnight, seconds where there are some.
  const clock = (at, kind) => {
    const part = (options) => new Date(at * 1000).toLocaleString("en-GB", { ...options, ...zone() });
    const second = kind === "second" || at % 60 >= 1;
    const hour = part({ hour: "2-digit", minute: "2-digit", ...(second ? { second: "2-digit" } : {}) });
    if (kind === "hour" || kind === "second") return hour;
    const day = part({ day: "numeric", month: "short" });
    return hour === "00:00" ? day : `${day}, ${hour}`;
  };
  const moment = (at) => `${new Date(at * 1000).toLocaleString("sv-SE", { dateStyle: "short", timeStyle: "medium", ...zone() })} ${zoneName(at)}`;
  const tick = () => {
    const now = Date.now() / 1000 + skew;
    for (const time of $$("time[data-at], text[data-at]")) {
      const { at, clock: kind } = time.dataset;
      if (kind) { write(time, clock(at, kind)); continue; }
      const away = at - now;
      if (kept.times) write(time, moment(at));
      else write(time, "for" in time.dataset ? span(-away) : Math.abs(away) < 1 ? "now" : away > 0 ? `in ${span(away)}` : `${span(-away)} ago`);
      if (time.dataset.shown === at + kept.zone) continue;
      time.dataset.shown = at + kept.zone;
      time.title = moment(at);
    }
  };

  // Live regions are updated from a newer copy of the page, by data-key, and keep what the reader opened or selected.
  let waiting = 0, forced = false;
  const held = (rows) => !forced && (rows.matches(":hover") || $(":focus-visible, [data-pick]:checked", rows));
  const mine = (element, name) => "mine" in element.dataset || element.tagName === "TR" && name === "class"
    || element.tagName === "DETAILS" && name === "open" || element.tagName === "INPUT";
  const morph = (old, fresh) => {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
    if (old.nodeType !== 1) return void (old.data !== fresh.data && (old.data = fresh.data));
    if (old.isEqualNode(fresh) || old.tagName === "TIME" && old.dataset.at === fresh.dataset.at) return;
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value && !mine(old, name)) old.setAttribute(name, value);
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !mine(old, name)) old.removeAttribute(name);
    if (!("rows" in old.dataset)) children(old, fresh); else if (held(old)) hold(old, fresh); else renew(old, fresh);
  };
  const children = (old, fresh) => {
    const keyed = new Map([...old.children].filter((one) => one.dataset.key !== undefined).map((one) => [one.dataset.key, one]));
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const key = next.dataset?.key;
      let mate = key === undefined ? at : keyed.get(key);
      if (key === undefined) while (mate?.dataset?.key !== undefined) mate = mate.nextSibling;
      else keyed.delete(key);
      if (!mate || mate.nodeName !== next.nodeName) { old.insertBefore(next, at); continue; }
      if (mate === at) at = at.nextSibling; else old.insertBefore(mate, at);
      if (mate.tagName === "TR") mate.classList.remove("gone");
      morph(mate, next);
    }
    while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
  };
  // A selected row that a newer copy of the page does not have: its job is gone, or newer jobs moved it to the next page.
  let doubted = [];
  const doubt = (row) => doubted.push(row);
  const isPicked = (row) => $("[data-pick]:checked", row);
  // Rows under the pointer do not move: rows that are gone fade, new rows wait for a click.
  const hold = (old, fresh) => {
    const coming = new Map([...fresh.children].map((row) => [row.dataset.key, row]));
    for (const row of old.children) {
      const mate = coming.get(row.dataset.key);
      if (!mate && isPicked(row)) { doubt(row); continue; }
      row.classList.toggle("gone", !mate);
      if (mate) { coming.delete(row.dataset.key); morph(row, mate); }
    }
    waiting += coming.size;
  };
  // The new rows, and below them selected rows that are not among them.
  const renew = (old, fresh) => {
    const coming = new Set([...fresh.children].map((row) => row.dataset.key));
    const stay = [...old.children].filter((row) => isPicked(row) && !coming.has(row.dataset.key));
    children(old, fresh);
    old.append(...stay);
    stay.forEach(doubt);
  };
  const resolve = async (rows) => {
    try {
      const { there } = await (await api("/jobs/still", { jobs: rows.map((row) => JSON.parse(row.dataset.seen)) })).json();
      rows.forEach((row, place) => {
        if (there[place]) return;
        row.classList.add("gone");
        $("[data-pick]", row).checked = false;
      });
      picked();
    } catch { /* The next refresh tries again. */ }
  };
  // The page of a job that is no longer found: nothing on it may suggest that the job still exists.
  const ended = (page) => {
    for (const one of $$("[data-running], [data-verb], [data-live=head] .tag", $("main"))) one.remove();
    for (const state of $$("[data-state]", page)) write(state, "ended");
    const note = $(".note", page);
    note.className = "note warn";
    write($("div", note), "This job ended while you watched: it completed, or it was deleted.");
  };
  const adopt = (fresh, status) => {
    waiting = 0;
    doubted = [];
    skew = fresh.body.dataset.now - Date.now() / 1000;
    const was = "away" in document.body.dataset, away = "away" in fresh.body.dataset;
    if (was && !away && $("main [data-live=main]")) { $("main").replaceWith($("main", fresh)); wire(); }
    for (const region of $$("[data-live]")) {
      const next = $(`[data-live="${region.dataset.live}"]`, fresh);
      if (next && (!away && status < 400 || region.id === "down")) morph(region, next);
    }
    const job = $("[data-live=job]");
    if (status === 404 && job) ended(job);
    else if (status === 404) $("#down").replaceChildren(make("div", { className: "note warn", textContent: $(".empty b", fresh)?.textContent }));
    forced = false;
    away ? document.body.dataset.away = "" : delete document.body.dataset.away;
    const pill = $("#fresh");
    pill.hidden = !waiting;
    pill.textContent = `${waiting} new – show`;
    tick();
    picked();
    if (doubted.length) resolve(doubted.slice(0, 500));
  };

  let looking = false, again = false, last = 0, paused = false, source, pulsed = 0, polling;
  const showLive = (is) => {
    const button = $("#live");
    button.dataset.is = is;
    write(button, { live: "Live", down: "No answer", held: "Paused" }[is]);
  };
  const refresh = async () => {
    again = looking;
    if (looking) return;
    looking = true;
    // What was asked for before a pause is not shown after it.
    const then = paused;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, signal: AbortSignal.timeout(15000) });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!fresh.body.dataset.now) throw Error("not a page of the console");
      if (paused === then) adopt(fresh, answer.status);
      showLive(paused ? "held" : "away" in document.body.dataset ? "down" : "live");
    } catch { showLive("down"); }
    looking = false;
    last = Date.now();
    if (again && !document.hidden) refresh();
  };
  const every = () => (kept.refresh || 2) * 1000;
  const beat = () => {
    if (paused || document.hidden || Date.now() - last < every() - 300) return;
    $("#live").classList.remove("beat");
    void $("#live").offsetWidth;
    $("#live").classList.add("beat");
    refresh();
  };
  const listen = () => {
    source?.close();
    source = undefined;
    clearInterval(polling);
    if (document.hidden || paused) return;
    source = new EventSource(`${document.body.dataset.root}/events`);
    for (const kind of ["pulse", "away"]) on(kind, () => { pulsed = Date.now(); beat(); }, source);
    source.onerror = () => {
      clearInterval(polling);
      // The browser does not try again: streams cannot pass here, as in a WSGI server. The page asks by itself.
      if (source.readyState === EventSource.CLOSED) polling = setInterval(beat, 500);
      else if (Date.now() - pulsed > 5000) showLive("down");
    };
  };
  const pause = (stop) => { paused = stop; showLive(stop ? "held" : "live"); listen(); if (!stop) refresh(); };

  // Actions: send JSON to the API and show its answer.
  const toast = (text, bad, link, deletion) => {
    const box = make("div", { className: bad ? "toast bad" : "toast" });
    const undo = () => { box.remove(); steps("Undo", "/undo", { deletion }, 400); };
    box.append(make("span", { textContent: text }), ...(link ? [make("a", { textContent: "Show", href: link })] : []),
      ...(deletion ? [make("button", { className: "b mini", textContent: "Undo", onclick: undo })] : []),
      make("button", { className: "b mini plain", textContent: "×", ariaLabel: "Close", onclick: () => box.remove() }));
    $("#toasts").append(box);
    setTimeout(() => box.remove(), bad || deletion ? 15000 : 6000);
  };
  const api = async (path, body, more = {}) => {
    const asked = body === undefined ? {} : {
      method: "POST", headers: { "Content-Type": "application/json" }, body: typeof body === "string" ? body : JSON.stringify(body) };
    const answer = await fetch(`${document.body.dataset.root}/api/v1${path}`, { ...asked, ...more });
    if (answer.ok) return answer;
    const data = await answer.json().catch(() => ({}));
    throw Error([data.error || `The console answered ${answer.status}.`, data.hint].filter(Boolean).join("\n"));
  };
  const failed = (error) => toast(error instanceof TypeError ? "The console does not answer. Nothing may have been changed." : error.message, true);
  // An action on queues by a pattern answers with an outcome for each.
  const whole = (outcomes) => {
    const left = outcomes.filter(({ done }) => !done);
    return outcomes.length ? `${outcomes.length} ${outcomes.length === 1 ? "queue" : "queues"}: ${(left[0] || outcomes[0]).message}` : "Nothing was to be changed.";
  };
  const act = async (path, body) => {
    try {
      const data = await (await api(path, body)).json();
      Array.isArray(data) ? toast(whole(data)) : toast(data.message, false, "", data.undo);
    } catch (error) { failed(error); }
    refresh();
  };
  // What a dry run found: ten of the jobs.
  const dry = async (path, body) => JSON.parse(await (await api(path, { ...body, dry_run: true })).text()).preview;
  const samples = (box, preview) => {
    const jobs = preview?.samples || [];
    box.hidden = !jobs.length;
    box.open = false;
    write($("summary", box), `See ${jobs.length < preview?.would_change ? `${jobs.length} of them` : "them"}`);
    $("ul", box).replaceChildren(...jobs.map((job) => make("li", { textContent: `${job.name || "unreadable"} ${JSON.stringify(job.args ?? "").slice(0, 200)} ${job.id}` })));
  };
  // Asks for confirmation; with a field, returns its text. With `type`, that text must be typed first. With `undoes`, the
  // answer is { undo: false } if the jobs shall not go to the bin. With `how`, it has how many are retried at a time.
  const confirmed = (title, text, yes, { bad, type, field, undoes, how, preview, value = "" } = {}) => new Promise((resolve) => {
    const box = $("#ask"), typed = $("input", box), good = $("#ask-good"), go = $("[value=yes]", box), label = field || type && `Type ${type} to confirm`;
    for (const [query, words] of [["h2", title], ["p", text], ["[value=yes]", yes], ["label", label || ""]]) write($(query, box), words);
    // If the action itself is called Cancel, the button that closes the dialog needs another label.
    write($("[data-close]", box), yes.startsWith("Cancel") ? "Go back" : "Cancel");
    go.classList.toggle("bad", Boolean(bad));
    typed.parentElement.hidden = !label;
    typed.value = value;
    go.disabled = Boolean(type);
    typed.oninput = () => { go.disabled = Boolean(type) && typed.value !== type; };
    good.checked = false;
    good.closest("[data-bin]").hidden = !undoes;
    $("[data-how]", box).hidden = !how;
    $("#ask-how").value = "all";
    samples($("[data-samples]", box), preview);
    box.returnValue = "";
    box.onclose = () => resolve(box.returnValue === "yes" && (field ? typed.value.trim() : { ...(good.checked && { undo: false }), ...(how && { how: $("#ask-how").value }) }));
    box.showModal();
    (label ? typed : go).focus();
  });
  // Actions in steps: one line of JSON after each. Stopping leaves the remaining jobs unchanged.
  const steps = async (title, path, body, after = 0) => {
    const box = $("#work"), bar = $("progress", box), stop = $("button", box), ending = new AbortController();
    write($("h2", box), title);
    write($("p", box), "Starting…");
    bar.value = 0;
    stop.onclick = () => ending.abort();
    box.oncancel = () => ending.abort();
    const opening = after && setTimeout(() => box.showModal(), after);
    if (!after) box.showModal();
    try {
      const reader = (await api(path, body, { signal: ending.signal })).body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (text + value).split("\n");
        text = lines.pop();
        for (const { progress, tally, error } of lines.filter(Boolean).map((line) => JSON.parse(line))) {
          if (error) throw Error(error);
          if (tally) toast(tally.message, false, "", tally.undo);
          if (!progress) continue;
          bar.value = progress.total ? progress.searched / progress.total : 1;
          write($("p", box), progress.message || `${progress.changed.toLocaleString("en")} changed, ${progress.searched.toLocaleString("en")} of ${progress.total.toLocaleString("en")} searched`);
        }
      }
    } catch (error) {
      error.name === "AbortError" ? toast(`Stopped. ${$("p", box).textContent}; what was done stays done.`) : failed(error);
    }
    clearTimeout(opening);
    box.close();
    refresh();
  };

  const undoable = (verb) => JSON.parse(document.body.dataset.undoes).includes(verb);
  const asks = () => JSON.parse(document.body.dataset.asks);

  // Click handlers, by data attribute.
  const does = {
    async post(button) {
      const { post, body, ask, yes, type } = button.dataset, bad = button.classList.contains("bad"), undoes = "undo" in button.dataset;
      let preview;
      try { if (ask && "stream" in button.dataset) preview = await dry(post, JSON.parse(body)); } catch (error) { return failed(error); }
      const sure = !ask || await confirmed(button.textContent.replace("…", ""), ask, yes, { bad, type, undoes, preview });
      if (!sure) return;
      const sent = sure.undo === false ? { ...JSON.parse(body), ...sure } : body;
      "stream" in button.dataset ? steps(button.textContent, post, sent) : act(post, sent);
    },
    async verb(button) {
      const { verb } = button.dataset, job = JSON.parse(button.closest("[data-seen]").dataset.seen), ask = asks()[verb], words = button.textContent;
      const sure = !ask || await confirmed(`${words} ${job.name || "it"}`, ask, words, { bad: true, undoes: undoable(verb) && job.state !== "running" });
      if (sure) act(`/job/${verb}`, { ...job, ...sure });
    },
    async some(button) {
      const jobs = picks().map((box) => JSON.parse(box.closest("tr").dataset.seen)), { some: verb } = button.dataset, ask = asks()[verb];
      const sure = !ask || await confirmed(`${button.textContent} ${jobs.length} selected`, ask, `${button.textContent} ${jobs.length}`, { bad: true, undoes: undoable(verb) });
      if (!sure) return;
      try {
        const data = await (await api("/jobs/selection", { verb, jobs, ...sure })).json();
        toast(`${data.done} done${data.failed ? `, ${data.failed} not: ${data.outcomes.find((one) => !one.done).message}` : "."}`, data.failed, "", data.undo);
      } catch (error) { failed(error); }
      none();
      refresh();
    },
    async every(button) {
      const { every: verb, state, name, where } = button.dataset, title = button.textContent.replace("…", "");
      const body = { verb, state, ...(where && { where }), ...(name && { name }) };
      try {
        const preview = await dry("/jobs/apply", body), { matched, complete } = preview.count, how = verb === "retry" && state === "dead" && matched > 1;
        const least = complete ? "" : "at least ", count = matched.toLocaleString("en"), many = `${least}${count} ${matched === 1 ? "job" : "jobs"}`;
        const label = `${title.split(" ")[0]} ${where ? `${least}${count} matching` : many}`;
        if (!matched) return toast("Nothing matches now.");
        const sure = await confirmed(label, `${many[0].toUpperCase()}${many.slice(1)} in ${state}${where ? ` where ${where}` : ""}. Jobs that come in later are not changed. You can stop it at any time.`,
          label, { bad: button.classList.contains("bad"), undoes: undoable(verb) && state !== "running", how, preview });
        if (!sure) return;
        const { how: chosen, ...rest } = sure;
        if (chosen === "waves") steps("Retry in waves", "/jobs/retry_in_waves", { where });
        else steps(label, "/jobs/apply", { ...body, ...rest, ...(chosen === "10" && { most: 10 }) });
      } catch (error) { failed(error); }
    },
    none: () => none(),
    close: (button) => button.closest("dialog").close(),
    async copy(button) {
      const { copy, link } = button.dataset, from = $("pre", button.parentElement), words = button.textContent;
      const text = link ? new URL(link, location).href : copy || from.textContent;
      try { await navigator.clipboard.writeText(text); } catch {
        // Without https a browser copies only what is selected.
        const field = make("textarea", { value: text });
        document.body.append(field);
        field.select();
        document.execCommand("copy");
        field.remove();
      }
      write(button, "Copied");
      setTimeout(() => write(button, words), 1500);
    },
    own(button) {
      for (const one of $$("[data-own]")) one.setAttribute("aria-pressed", one === button);
      $("#trace").classList.toggle("own", button.dataset.own === "own");
    },
    async stack(button) {
      const { stack: pool, token } = button.dataset, box = $("#show"), body = $("pre", box);
      write($("h2", box), "Current stack");
      write(body, "Asking the pool. It answers at its next heartbeat, within seconds…");
      box.showModal();
      try {
        const data = await (await api(`/pool/stacks?${new URLSearchParams({ pool })}`)).json(), worker = data?.workers.find((one) => one.token === token);
        if (!worker) return write(body, data ? "The job has ended in the meantime." : "The pool has stopped, or does not answer.");
        body.className = "trace";
        body.replaceChildren(...worker.frames.map((frame) => make("span", {
          className: frame.own ? "own-frame" : "lib", textContent: `${frame.file}:${frame.line}, in ${frame.function}\n    ${frame.source}` })));
      } catch (error) { write(body, error.message); }
    },
    async later(button) {
      const job = JSON.parse(button.closest("[data-seen]").dataset.seen);
      const text = await confirmed("Reschedule", `${button.title} Write a span such as 5m or 2h, or a moment such as 2030-01-31T09:00+01:00.`, "Reschedule", { field: "When" });
      if (text === false) return;
      try {
        const moment = /^\d{4}-/.test(text) ? Date.parse(text) / 1000 : undefined;
        if (Number.isNaN(moment)) throw Error(`${text}: write a moment such as 2030-01-31T09:00+01:00.`);
        act(button.dataset.later, { ...job, ...(moment === undefined ? { delay: seconds(text) } : { due_at: moment }) });
      } catch (error) { failed(error); }
    },
    async moving(button) {
      const to = await confirmed("Move to another name", button.title, "Move", { field: "Job name" });
      if (to) act(button.dataset.moving, { ...JSON.parse(button.closest("[data-seen]").dataset.seen), to });
    },
    async moveall(button) {
      const { moveall, name, where } = button.dataset, body = { ...(where && { where }), ...(name && { name }) };
      try {
        const preview = await dry(moveall, { ...body, to: "nowhere" });
        if (!preview.count.matched) return toast("Nothing matches now.");
        const to = await confirmed(button.textContent.replace("…", ""), button.title, "Move", { field: "Job name", preview });
        if (to) steps("Move", moveall, { ...body, to });
      } catch (error) { failed(error); }
    },
    async limit(button) {
      const { limit, name, effect } = button.dataset;
      const text = await confirmed("Concurrency limit", effect, "Set limit", { field: "Limit", value: limit });
      if (text !== false) act("/queue/limit", `{"name":${JSON.stringify(name)},"limit":${/^\d+$/.test(text) ? Number(text) : text ? JSON.stringify(text) : null}}`);
    },
    // One text that the reader fills in; a span of time is sent in seconds.
    async fill(button) {
      const { fill, part, body, field, value, effect, yes = "Save" } = button.dataset;
      const text = await confirmed(button.textContent.replace("…", ""), effect, yes, { field, value });
      try { if (text !== false) act(fill, { ...JSON.parse(body), [part]: part === "seconds" ? seconds(text) : text }); } catch (error) { failed(error); }
    },
    async repair(button) {
      const box = $("#repair"), field = $("textarea", box);
      field.value = button.dataset.text;
      box.onclose = () => box.returnValue === "yes" && act("/broken/repair", { ...JSON.parse(button.dataset.repair), payload: field.value });
      box.returnValue = "";
      box.showModal();
    },
  };

  // The selection.
  const boxes = () => $$("tr:not(.gone) [data-pick]");
  const picks = () => boxes().filter((box) => box.checked);
  let from;
  const picked = () => {
    const chosen = picks(), bar = $("#pickbar"), all = $("[data-all]");
    for (const box of $$("[data-pick]")) box.closest("tr").classList.toggle("picked", box.checked);
    if (all) {
      all.checked = chosen.length > 0 && chosen.length === boxes().length;
      all.indeterminate = chosen.length > 0 && !all.checked;
    }
    if (!bar) return;
    bar.hidden = !chosen.length;
    write($("b", bar), `${chosen.length} selected`);
  };
  const none = () => { for (const box of picks()) box.checked = false; picked(); };
  const pick = (box, event) => {
    const all = boxes(), here = all.indexOf(box), there = all.indexOf(from);
    if (event.shiftKey && there >= 0) for (const one of all.slice(Math.min(here, there), Math.max(here, there) + 1)) one.checked = box.checked;
    from = box;
    picked();
  };

  // Forms: arguments are sent as written, so that large numbers stay exact.
  const seconds = (text) => {
    const units = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 };
    if (/^\d+(\.\d+)?$/.test(text)) return Number(text);
    if (!/^(\d+(\.\d+)?[smhdw])+$/.test(text)) throw Error(`Run in ${text}: write a span such as 90s, 5m, 1h30m or 2d.`);
    return [...text.matchAll(/([\d.]+)([smhdw])/g)].reduce((sum, [, number, unit]) => sum + number * units[unit], 0);
  };
  const json = (name, text) => {
    try { JSON.parse(text); return text; } catch { throw Error(`${name}: this is not JSON: ${text.slice(0, 60)}`); }
  };
  const enqueue = async (form) => {
    const wrong = $("#wrong");
    wrong.hidden = true;
    try {
      const pairs = [];
      for (const field of $$("[data-arg]", form)) {
        const { arg, kind } = field.dataset, text = field.value, must = "required" in field.dataset;
        if (text === "" && must) throw Error(`${arg} is needed; write "" for an empty text.`);
        if (text === "") continue;
        if (kind === "integer" && !/^-?(0|[1-9]\d*)$/.test(text)) throw Error(`${arg}: write a whole number, not ${text}.`);
        pairs.push(`${JSON.stringify(arg)}:${kind === "text" && text !== '""' ? JSON.stringify(text) : json(arg, text)}`);
      }
      const more = $("[data-rest]", form)?.value.trim() || "{}";
      if (typeof JSON.parse(json("Arguments", more)) !== "object" || !/^\{[^]*\}$/.test(more)) throw Error("Arguments: write a JSON object, like {\"to\": \"ada@example.com\"}.");
      const inner = more.slice(1, -1).trim(), delay = $("#delay").value.trim(), source = $("#source").value.trim();
      const args = [...pairs, ...(inner ? [inner] : [])].join(",");
      const rest = { ...(delay && { delay: seconds(delay) }), ...(source && { source: /^\d{1,15}$/.test(source) ? Number(source) : source }) };
      const data = await (await api("/enqueue", `{"name":${JSON.stringify(form.dataset.name)},"args":{${args}}${Object.entries(rest).map(([key, value]) => `,"${key}":${JSON.stringify(value)}`).join("")}}`)).json();
      const id = /^job (\S+)/.exec(data.subject)?.[1];
      toast(data.message, false, id && `${document.body.dataset.root}/job?${new URLSearchParams({ id, name: form.dataset.name })}`);
    } catch (error) {
      if (error instanceof TypeError) return failed(error);
      write(wrong, error.message);
      wrong.hidden = false;
    }
  };

  // The palette: pages by their names, and what the server finds. Enter without a choice opens the page of the search.
  let sought = 0;
  const options = () => $$("#hits [role=option]");
  const choose = (option) => {
    for (const one of options()) one.setAttribute("aria-selected", one === option);
    option?.scrollIntoView({ block: "nearest" });
    option ? $("#seek").setAttribute("aria-activedescendant", option.id) : $("#seek").removeAttribute("aria-activedescendant");
  };
  const offer = (found) => {
    const chosen = $("#hits [aria-selected=true] a")?.href;
    $("#hits").replaceChildren(...found.map(({ kind, name, more, link }, place) => {
      const row = make("li", { id: `hit-${place}`, role: "option" }), to = make("a", { href: link, tabIndex: -1 });
      to.append(make("b", { textContent: name }), make("span", { className: "tag", textContent: kind }), make("span", { className: "soft", textContent: more }));
      row.append(to);
      return row;
    }));
    $("#seek").setAttribute("aria-expanded", found.length > 0);
    choose(options().find((one) => $("a", one).href === chosen) || options()[0]);
  };
  const seek = async () => {
    const text = $("#seek").value.trim(), turn = ++sought;
    const pages = $$("nav [data-go], .foot [data-go]").map((link) => ({ kind: "page", name: link.firstChild.nodeType === 3 ? link.textContent : link.ariaLabel || link.childNodes[1].textContent, more: "", link: link.href }))
      .filter(({ name }) => text && name.toLowerCase().includes(text.toLowerCase()));
    offer(pages);
    write($("#sought"), text ? "Searching…" : "");
    if (!text) return;
    try {
      const { hits, complete } = await (await api(`/search?${new URLSearchParams({ q: text })}`)).json();
      if (turn !== sought) return;
      offer([...pages, ...hits.map(({ hit, link }) => ({ kind: hit.state || hit.kind, name: hit.kind === "error" ? hit.text : hit.name,
        more: hit.kind === "error" ? hit.name : hit.id || hit.text, link: document.body.dataset.root + link }))]);
      write($("#sought"), `${hits.length || "No"} ${hits.length === 1 ? "hit" : "hits"}.${complete ? "" : " Not all jobs were searched; Ctrl+Enter shows which."}`);
    } catch (error) { if (turn === sought) write($("#sought"), error.message); }
  };
  let resting;
  const soon = () => { clearTimeout(resting); resting = setTimeout(seek, 150); };
  const palette = () => {
    if ($("dialog[open]")) return;
    $("#seek").value = "";
    offer([]);
    write($("#sought"), "");
    $("#palette").showModal();
    $("#seek").focus();
  };
  const steer = (event) => {
    const all = options(), here = all.findIndex((one) => one.ariaSelected === "true"), by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    // In a search field the key would only clear the text.
    if (event.key === "Escape") { event.preventDefault(); $("#palette").close(); }
    if (by && all.length) { event.preventDefault(); choose(all[(here + by + all.length) % all.length]); }
    if (event.key === "Enter" && !event.ctrlKey && here >= 0) { event.preventDefault(); $("a", all[here]).click(); }
    else if (event.key === "Enter" && event.ctrlKey) event.target.form.requestSubmit();
  };

  // The keyboard.
  let going = 0;
  const theme = () => {
    const dark = kept.theme ? kept.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    keep("theme", dark ? "light" : "dark");
  };
  const turnTimes = () => { keep("times", kept.times ? "" : "absolute"); tick(); };
  const step = (by) => {
    const rows = $$("main a.row"), here = rows.indexOf(document.activeElement?.closest("tr")?.querySelector("a.row"));
    const next = rows[Math.min(rows.length - 1, Math.max(0, here + by))];
    next?.focus({ focusVisible: true });
    next?.scrollIntoView({ block: "nearest" });
  };
  const keys = {
    "?": () => $("#help").showModal(), "/": () => ($("[data-filter]") || $("#find")).focus(), j: () => step(1), k: () => step(-1),
    x: () => { const box = $("[data-pick]", document.activeElement.closest("tr") || make("i")); if (box) { box.checked = !box.checked; picked(); } },
    r: refresh, p: () => pause(!paused), t: theme, z: turnTimes, Escape: none, n: () => $("main [rel=next]")?.click(),
  };
  on("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") { event.preventDefault(); return palette(); }
    if (event.target.id === "seek") return steer(event);
    const field = event.target.closest("input:not([type=checkbox]), textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || $("dialog[open]")) return;
    if (field) { if (event.key === "Escape") field.blur(); return; }
    if (going && Date.now() - going < 3000) {
      going = 0;
      const link = $$("[data-go]").find((one) => one.dataset.go === event.key);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") going = Date.now();
    else if (Object.hasOwn(keys, event.key)) { if (event.key !== "Escape") event.preventDefault(); keys[event.key](); }
  });

  on("click", (event) => {
    const box = event.target.closest("[data-pick], [data-all]"), spot = event.target.closest("[data-to]");
    if (spot) return void location.assign(spot.dataset.to);
    if (box?.matches("[data-pick]")) return pick(box, event);
    if (box) { for (const one of boxes()) one.checked = box.checked; return picked(); }
    // A click on a time shows all of them as moments, or as spans again.
    if (event.target.closest("time[data-at]:not([data-clock])") && !event.target.closest("a, button, summary")) return turnTimes();
    const button = event.target.closest("button");
    for (const key of button ? Object.keys(button.dataset) : []) if (Object.hasOwn(does, key)) return void does[key](button);
    if (event.target.nodeName === "DIALOG") event.target.close();
  });
  on("input", ({ target }) => { if (target.id === "seek") soon(); });
  on("submit", (event) => { if (event.target.id === "enqueue") { event.preventDefault(); enqueue(event.target); } });
  on("change", (event) => {
    const { target } = event;
    if (target.form?.id === "settings") { keep(target.name, target.value); if (target.name === "refresh") pause(target.value === "off"); tick(); }
    if ("submit" in target.dataset) target.form.submit();
    if ("jump" in target.dataset && $$("option", target.list).some((one) => one.value === target.value)) target.form.submit();
  });
  on("pointerover", (event) => {
    const bar = event.target.closest?.("[data-say]"), tip = $("[data-tip]", event.target.closest?.("[data-chart]") || make("i"));
    if (!tip) return;
    tip.textContent = bar ? `${bar.dataset.at ? `${clock(bar.dataset.at)}: ` : ""}${bar.dataset.say}` : "";
  });
  on("mouseout", ({ target, relatedTarget }) => {
    const rows = target.closest("[data-rows]");
    if (rows && !rows.contains(relatedTarget) && (waiting || $(".gone", rows))) refresh();
  });
  on("visibilitychange", () => { listen(); if (!document.hidden && !paused) refresh(); });

  // Runs when the page is loaded, and again when all of it is replaced.
  const wire = () => {
    tick();
    $("#live").onclick = () => pause(!paused);
    $(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    for (const field of $$("#settings input")) field.checked = field.name in kept ? kept[field.name] === field.value : field.defaultChecked;
  };
  on("DOMContentLoaded", () => {
    skew = document.body.dataset.now - Date.now() / 1000;
    $("#theme").onclick = theme;
    $("#keys").onclick = keys["?"];
    $("#fresh").onclick = () => { forced = true; refresh(); };
    $("#menu").onclick = ({ currentTarget }) => currentTarget.setAttribute("aria-expanded", $("#side").classList.toggle("open"));
    last = Date.now();
    wire();
    picked();
    paused = kept.refresh === "off";
    showLive(paused ? "held" : "away" in document.body.dataset ? "down" : "live");
    listen();
    setInterval(tick, 1000);
    // If the event stream is interrupted or Redis does not answer, pages are still refreshed.
    setInterval(() => { if (Date.now() - pulsed > 4000) beat(); }, 2000);
  });
})();
