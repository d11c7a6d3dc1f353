// The script of the dashboard: it keeps the page as the server says it is now.
//
// One rule: the server decides what is shown. The script applies changes to elements, and shows times as their reader
// knows them.
"use strict";

const QUIET_SECONDS = 30; // the server sends a line at least every 10 s
const LONGEST_PAUSE = 15;
const HELD_SECONDS = 5;
const HELD_ANSWERS = 60;
const TRIAL_SECONDS = 15;
const HELD = `the network holds messages back: this page moves every ${HELD_SECONDS} s`;
const SILENT = "silent";
const connection = document.getElementById("connection");
let open = null; // aborts the stream
let heard = 0;
let told = false; // whether the stream has told anything
let patience = QUIET_SECONDS;
let pause = 1;
let held = false; // whether something on the way holds a stream back until it ends
let answers = 0; // how many short answers took the place of a stream
let ahead = 0; // how far the server's clock is ahead of this machine's, in ms: ages are those of the server's clock

function shown() {
  const sections = {};
  for (const section of document.querySelectorAll("[id]:has(> [data-version])")) sections[section.id] = [];
  for (const each of document.querySelectorAll("[data-version]")) {
    (sections[each.parentElement.id] ??= []).push([each.id, each.dataset.version]);
  }
  return sections;
}

function parse(html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  return holder.content.firstElementChild;
}

function apply(change) {
  let element = document.getElementById(change.id);
  if (change.section === undefined) return element?.remove();
  const section = document.getElementById(change.section);
  const before = change.before ? document.getElementById(change.before) : null;
  if (change.html !== undefined) {
    const made = parse(change.html);
    keep(element, made);
    if (element) element.replaceWith(made);
    element = made;
  }
  const next = element.nextElementSibling;
  if (element.parentElement === section && next === before) return;
  const focused = element.contains(document.activeElement) ? document.activeElement : null;
  section.insertBefore(element, before);
  focused?.focus({ preventScroll: true });
}

// What the reader has done to an element stays: opened details and the focus.
function keep(old, made) {
  if (!old) return;
  const opened = old.querySelectorAll("details");
  made.querySelectorAll("details").forEach((each, place) => { each.open = opened[place]?.open ?? each.open; });
  if (!old.contains(document.activeElement)) return;
  const path = [...old.querySelectorAll("a, button, summary, input, select")].indexOf(document.activeElement);
  queueMicrotask(() => made.querySelectorAll("a, button, summary, input, select")[path]?.focus({ preventScroll: true }));
}

function say(text) {
  if (connection.textContent !== text) connection.textContent = text;
}

async function follow() {
  if (!document.body.dataset.page) return; // what is shown is no page that changes
  const aborter = open = new AbortController();
  const wasHeld = held;
  const once = held && ++answers % HELD_ANSWERS !== 0; // now and then a stream is tried again
  patience = held && !once ? TRIAL_SECONDS : QUIET_SECONDS;
  told = false;
  heard = Date.now();
  try {
    const answer = await fetch("/stream", {
      method: "POST",
      headers: { "Content-Type": "application/json", "Torchq-Secret": document.body.dataset.secret },
      body: JSON.stringify({ page: document.body.dataset.page, shown: shown(), once }),
      signal: aborter.signal,
    });
    if (!answer.ok) throw new Error(answer.statusText);
    const difference = Date.parse(answer.headers.get("Date")) - Date.now();
    ahead = Math.abs(difference) > 2000 ? difference : 0; // the header has whole seconds
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      heard = Date.now();
      told = true;
      held = once;
      pause = 1;
      text += value;
      const messages = text.split("\n\n");
      text = messages.pop();
      for (const message of messages) {
        if (message.startsWith("data: ")) JSON.parse(message.slice(6)).forEach(apply);
        if (message.startsWith("event: end")) return again();
        if (message.startsWith("event: full")) return stay();
      }
      say(held ? HELD : "");
      tell();
    }
  } catch (error) {
    if (open !== aborter) return;
  }
  if (open !== aborter || document.hidden) return;
  const next = (seconds) => setTimeout(() => { if (open === aborter && !document.hidden) follow(); }, seconds * 1000);
  if (once && told) return next(HELD_SECONDS);
  const isSilent = aborter.signal.reason === SILENT;
  held ||= isSilent;
  if (isSilent && wasHeld && !once) return next(0);
  if (["", HELD].includes(connection.textContent)) say(`connection lost since ${new Date(heard).toLocaleTimeString([], { timeStyle: "short" })}`);
  next(isSilent ? 0 : pause * (0.5 + Math.random()));
  pause = Math.min(LONGEST_PAUSE, pause * 2);
}

// The page is not there any more, or not for this reader: the server says why. Never more often than each 3 s.
function again() {
  setTimeout(() => location.reload(), Math.max(0, 3000 - performance.now()));
}

// The server follows no more pages: this one stays as it is, and asks again after a while.
function stay() {
  close();
  say("too many pages are open: this one does not move now");
  setTimeout(() => { if (!open && !document.hidden) follow(); }, 60000);
}

function close() {
  const aborter = open;
  open = null;
  aborter?.abort();
}

function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole}s`;
  if (whole < 7200) return `${Math.floor(whole / 60)}m`;
  if (whole < 172800) return `${Math.floor(whole / 3600)}h${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}m`;
  return `${Math.floor(whole / 86400)}d`;
}

function tell() {
  for (const each of document.querySelectorAll("time[datetime]")) {
    const at = new Date(each.dateTime);
    if (isNaN(at)) continue; // what users write may look like a time and be none
    const text = each.classList.contains("age") ? age((Date.now() + ahead - at) / 1000) : at.toLocaleString([], { dateStyle: "short", timeStyle: "medium" });
    if (!each.title) each.title = each.textContent;
    if (each.textContent !== text) each.textContent = text;
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else { tell(); follow(); }
});
setInterval(() => {
  if (document.hidden) return;
  tell();
  if (open && Date.now() - heard > patience * 1000) open.abort(told ? "quiet" : SILENT);
}, 1000);
tell();
if (!document.hidden) follow();
