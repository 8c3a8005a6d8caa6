"use strict";

// What this page has seen, in tokens, as the servers tell it; kept for as long as the page is open.
let context = [];
const byId = (id) => document.getElementById(id);
const sides = [
  { section: byId("alice"), url: "" },
  { section: byId("bob"), url: "" },
];

async function ask(url, options = {}) {
  const sent = byId("carry").checked ? context : [];
  const headers = sent.length ? { baggage: `meridian=${sent.join(".")}` } : {};
  const response = await fetch(url, { ...options, headers });
  const told = response.headers.get("Meridian-Context");
  if (byId("carry").checked && told !== null) {
    // An answer takes the place of what its request told. What others told meanwhile stays.
    const left = told.split(".").filter(Boolean);
    context = [...context.filter((token) => !sent.includes(token)), ...left];
    // With less than was told, and nothing new: a token was refused, as after an hour, and nothing was done.
    const isRefused = left.length < sent.length && left.every((token) => sent.includes(token));
    if (response.status === 400 && isRefused) return ask(url, options);
  }
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({ error: response.statusText }));
    throw Object.assign(new Error(error), { status: response.status });
  }
  return response;
}

function say(side, text, wrong = false) {
  const status = side.section.querySelector(".status");
  status.textContent = text;
  status.classList.toggle("wrong", wrong);
}

// Only what the servers say goes into an album's list: one that has been added here is shown when a server has it.
async function look(side) {
  const album = byId("album").value;
  const began = performance.now();
  const turn = side.turn = (side.turn ?? 0) + 1;
  const { photos } = await (await ask(`${side.url}/albums/${encodeURIComponent(album)}`)).json();
  // A look that was overtaken by a newer one shows an old state, or another album.
  if (turn === side.turn) side.section.querySelector(".photos").replaceChildren(...photos.map((photo) => draw(side, photo)));
  return { photos, took: performance.now() - began };
}

function draw(side, photo) {
  const item = document.createElement("li");
  item.dataset.id = photo.id;
  const link = document.createElement("a");
  link.href = `${side.url}/photos/${photo.id}`;
  if (photo.thumb) {
    const image = new Image();
    image.src = `${side.url}/thumbs/${photo.id}`;
    image.alt = photo.title || "untitled";
    link.append(image);
  } else {
    const waiting = document.createElement("span");
    waiting.className = "waiting";
    waiting.textContent = "thumbnail to come";
    link.append(waiting);
  }
  const title = document.createElement("p");
  title.textContent = photo.title || "untitled";
  item.append(link, title);
  return item;
}

// Nobody knows what came of it, and another try may end well.
const isUnanswered = (error) => error.status === undefined || error.status >= 500;

// Looks again until all thumbnails are there. A look that fails ends it only if the next one would fail as well.
async function follow(side) {
  clearTimeout(side.timer);
  const looking = look(side);
  const { turn } = side;
  let again = 0;
  let trouble = "";
  try {
    const { photos } = await looking;
    if (photos.some((photo) => !photo.thumb)) again = 400;
  } catch (error) {
    if (isUnanswered(error)) again = 1000;
    trouble = again ? `no answer (${error.message}): looking again` : error.message;
  }
  // Whoever has begun to look meanwhile goes on.
  if (turn !== side.turn) return;
  side.section.querySelector(".trouble").textContent = trouble;
  if (again) side.timer = setTimeout(() => follow(side), again);
}

const TRIES = ["first", "second", "third", "fourth", "fifth"];

async function add(data, title) {
  const [alice, bob] = sides;
  const id = crypto.randomUUID();
  const url = `${alice.url}/albums/${encodeURIComponent(byId("album").value)}?` +
    new URLSearchParams({ id, title, at: String(Date.now() / 1000) });
  say(alice, "adding …");
  say(bob, "");
  // With the same id a second try adds no second photo, whatever came of the first.
  for (let tries = 1; ; tries += 1) {
    const began = performance.now();
    try {
      await ask(url, { method: "POST", body: data });
      say(alice, `added in ${Math.round(performance.now() - began)} ms` + (tries > 1 ? `, at the ${TRIES[tries - 1]} try` : ""));
      break;
    } catch (error) {
      const retry = tries < TRIES.length && isUnanswered(error);
      say(alice, retry ? `no answer (${error.message}): trying again` : error.message, true);
      if (!retry) return;
      await new Promise((resolve) => setTimeout(resolve, 500 * tries));
    }
  }
  try {
    const { photos, took } = await look(bob);
    const there = photos.some((photo) => photo.id === id);
    say(bob, there ? `sees it (asked ${Math.round(took)} ms)` : "does not see it, though Alice was told that it is there", !there);
  } catch (error) {
    say(bob, error.message, true);
  }
  for (const side of sides) follow(side);
}

function paint(title) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [640, 480];
  const brush = canvas.getContext("2d");
  const hue = Math.floor(Math.random() * 360);
  const sky = brush.createLinearGradient(0, 0, 0, 480);
  sky.addColorStop(0, `hsl(${hue} 70% 35%)`);
  sky.addColorStop(1, `hsl(${(hue + 60) % 360} 90% 70%)`);
  brush.fillStyle = sky;
  brush.fillRect(0, 0, 640, 480);
  brush.fillStyle = `hsl(${(hue + 40) % 360} 100% 85%)`;
  brush.beginPath();
  brush.arc(100 + Math.random() * 440, 140 + Math.random() * 160, 60, 0, 7);
  brush.fill();
  brush.fillStyle = `hsl(${hue} 60% 15%)`;
  brush.beginPath();
  brush.moveTo(0, 480);
  for (let x = 0; x <= 640; x += 40) brush.lineTo(x, 330 + Math.random() * 90);
  brush.lineTo(640, 480);
  brush.fill();
  brush.font = "32px sans-serif";
  brush.fillText(title, 24, 52);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.85));
}

byId("add").addEventListener("submit", (event) => {
  event.preventDefault();
  const [file] = byId("file").files;
  if (!file) return say(sides[0], "choose a JPEG or PNG, or have one painted", true);
  add(file, byId("title").value);
});
byId("paint").addEventListener("click", async () => {
  const title = byId("title").value || "Painted";
  add(await paint(title), title);
});
byId("controls").addEventListener("submit", (event) => event.preventDefault());
byId("album").addEventListener("change", () => sides.forEach(follow));
byId("carry").addEventListener("change", () => { context = []; });

(async () => {
  const { region, peers } = await (await ask("/here")).json();
  const [other] = Object.entries(peers).filter(([name]) => name !== region);
  const names = [region, other ? other[0] : region];
  sides[1].url = other ? other[1] : "";
  sides.forEach((side, index) => { side.section.querySelector(".region").textContent = names[index]; });
  sides.forEach(follow);
})();
