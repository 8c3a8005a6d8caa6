#!/usr/bin/env python3
"""Pages of `meridian check --explain` in a real browser: all there, legible, inside the view, on a desktop and on a phone.

usage: timeline.py PATH/TO/meridian [DIRECTORY FOR SCREENSHOTS]
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

from playwright.sync_api import sync_playwright

MERIDIAN = sys.argv[1] if len(sys.argv) in (2, 3) else sys.exit(__doc__)
SHOTS = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else None
EVIL = "<script>document.title='owned'</script>\"'><img src=x onerror=document.title='owned'>\u202e&amp;"

# Name, model, history in the notation of crates/check/tests/common, operations that have no order, reasons between them.
CASES = [
    ("stale", "linearizable", "p1 [0,1] w x 1; p2 [2,3] r x 0", [1, 2], ["realtime", "replaced"]),
    (
        "message",
        "rsc",
        "p1 [0,10] w x 1; p2 [1,2] r x 1; p3 [3,4] r x 0 after 2; p4 [2,8] r y 0",
        [1, 2, 3],
        ["saw", "message", "replaced"],
    ),
    (
        "services",
        "rsc",
        "p0@x [0,20] w k 1; p9@y [0,20] w k 1; p1@x [1,2] r k 1; p1@y [3,4] r k 0; p2@y [1,2] r k 1; p2@x [3,4] r k 0",
        [1, 2, 3, 4, 5, 6],
        ["saw", "session", "replaced", "saw", "session", "replaced"],
    ),
    (
        "pending",
        "rsc",
        "p1 [0,] w x 1; p2 [1,2] r x 1; p2 [3,4] w y 1; p3 [5,6] r y 1; p3 [7,8] r x 0; p4 [6,] w z 9; p4 [7,9] r z 0",
        [1, 2, 3, 4, 5],
        None,
    ),
    ("same session", "rss", "p1 [0,20] w x 1, w y 1; p2 [1,2] r x 1; p2 [3,4] r y 0", None, None),
    ("fence", "rsc", "p1 [0,30] w x 1; p2 [1,2] r x 1; p2 [3,4] fence; p3 [5,6] r x 0", None, None),
    (
        "long values",
        "strict-serializable",
        "client-with-a-long-name-1 [1000000,2000000] w account:4711 0123456789abcdef0123456789abcdef, w b 2, w c 3, w d 4, w e 5, w f 6; "
        "client-with-a-long-name-2 [2500000,90000000] r account:4711 0, r f 0",
        [1, 2],
        None,
    ),
    ("long", "rsc", None, None, None),
    ("evil", "linearizable", None, [1, 2], ["realtime", "replaced"]),
]


def history(text):
    """Events of a history in short notation."""
    events = []
    for number, operation in enumerate(text.split(";"), 1):
        who, start, end, what, after = re.fullmatch(
            r"\s*(\S+) \[(\d+),(\d*)\] (.*?)(?: after ([\d ]+))?\s*", operation
        ).groups()
        session, _, service = who.partition("@")
        fence = what == "fence"
        accesses = [] if fence else [access.split() for access in what.split(",")]
        events.append(
            {
                "id": number,
                "session": session,
                "service": service,
                "kind": "fence" if fence else "op",
                "ops": [[mode, key, None if value == "0" else value] for mode, key, value in accesses],
                "invoke": int(start),
                "return": int(end) if end else None,
                "outcome": "ok" if end else "unknown",
                "after": [int(number) for number in (after or "").split()],
            }
        )
    return events


def long_history():
    """Sixteen sessions take turns for 2,000 operations that all hold, but for one stale read."""
    events, newest = [], {}
    for number in range(1, 2001):
        key, write = f"k{number % 7}", number % 3 == 0
        if write:
            newest[key] = number
        seen = newest.get(key)
        if number == 1001:
            key, seen = "k5", 12
        events.append(
            {
                "id": number,
                "session": f"c{number % 16}",
                "ops": [["w" if write else "r", key, seen and str(seen)]],
                "invoke": 1_700_000_000_000 + number * 1000,
                "return": 1_700_000_000_000 + number * 1000 + 900,
                "witness": {"cs": [seen or 0, 0, 0]},
            }
        )
    return events


def evil_history():
    """What somebody would write to take over the page."""
    write = {"id": 1, "session": EVIL, "service": EVIL, "ops": [["w", EVIL, EVIL]], "invoke": 0, "return": 1}
    return [write, {**write, "id": 2, "session": "p2", "ops": [["r", EVIL, None]], "invoke": 2, "return": 3}]


# Runs in the page and says what is wrong with it.
INSPECT = r"""
() => {
  const wrong = [];
  const box = e => e.getBoundingClientRect();
  const within = (a, b, by) => a.left >= b.left - by && a.right <= b.right + by && a.top >= b.top - by && a.bottom <= b.bottom + by;
  const apart = (a, b) => a.right <= b.left + .5 || b.right <= a.left + .5 || a.bottom <= b.top + .5 || b.bottom <= a.top + .5;
  const shape = op => op.querySelector('rect');
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) wrong.push(`the page is ${root.scrollWidth} wide in a view of ${innerWidth}`);
  if (document.querySelector('script, img, iframe, object')) wrong.push('there is an element that has no business here');
  for (const lanes of document.querySelectorAll('svg.lanes')) {
    const picture = box(lanes), ops = [...lanes.querySelectorAll('.op')], steps = [...lanes.querySelectorAll('.step')];
    for (const op of ops) {
      const bar = box(shape(op)), name = op.querySelector('title').textContent;
      if (bar.width < 8 || bar.height < 8) wrong.push(`no bar: ${name}`);
      if (!within(bar, picture, 0)) wrong.push(`outside: ${name}`);
      for (const label of op.querySelectorAll('text'))
        if (!within(box(label), bar, 2)) wrong.push(`label wider than its bar: ${name}`);
      for (const other of ops)
        if (other !== op && !apart(bar, box(shape(other)))) wrong.push(`bars overlap: ${name}`);
    }
    const numbers = [...lanes.querySelectorAll('.number circle')];
    for (const [i, step] of steps.entries()) {
      const line = step.querySelector('.line'), name = step.querySelector('title').textContent;
      if (line.getTotalLength() < 15) wrong.push(`no arrow: ${name}`);
      if (!within(box(line), picture, 0)) wrong.push(`arrow outside: ${name}`);
      if (getComputedStyle(line).stroke === 'none' || getComputedStyle(step.querySelector('.head')).fill === 'none')
        wrong.push(`invisible: ${name}`);
      for (const other of numbers.slice(i + 1))
        if (!apart(box(numbers[i]), box(other))) wrong.push(`numbers overlap: ${name}`);
    }
  }
  // Contrast of text with what lies behind it, as WCAG counts it.
  const channels = colour => colour.match(/[\d.]+/g).slice(0, 3).map(Number);
  const light = colour => channels(colour).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((m, n) => m - n); return (y + .05) / (x + .05); };
  const page = getComputedStyle(document.body).backgroundColor;
  for (const e of document.querySelectorAll('p, td, th, caption, figcaption, li'))
    if (contrast(getComputedStyle(e).color, page) < 4.5) wrong.push(`pale: ${e.textContent.slice(0, 30)}`);
  for (const bar of document.querySelectorAll('.op rect.bar'))
    for (const text of bar.parentNode.querySelectorAll('text, tspan'))
      if (contrast(getComputedStyle(text).fill, getComputedStyle(bar).fill) < 4.5) wrong.push(`pale: ${text.textContent}`);
  for (const e of document.querySelectorAll('.step .line, .core .bar'))
    if (contrast(getComputedStyle(e).stroke, page) < 3) wrong.push(`pale: ${e.outerHTML.slice(0, 60)}`);
  return wrong;
}
"""


def explain(directory, name, model, events):
    """Has meridian write the page; returns its path."""
    source, page = directory / f"{name}.jsonl", directory / f"{name}.html".replace(" ", "-")
    source.write_text("".join(json.dumps(event) + "\n" for event in events))
    command = [MERIDIAN, "check", "--model", model, "--explain", str(page), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, f"{done.returncode}: {done.stdout}{done.stderr}"
    return page


def look(browser, page_file, case, view, scheme):
    """Opens the page as one kind of reader sees it, and checks what is there."""
    name, model, _, operations, reasons = case
    context = browser.new_context(viewport=view, color_scheme=scheme, device_scale_factor=2 if view["width"] < 500 else 1)
    page = context.new_page()
    noise, requests = [], []
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    assert page.title() == f"{model} violated · meridian check", page.title()
    assert page.get_by_role("heading", name=f"{model} is violated").is_visible()
    assert len(page.locator(".words").inner_text()) > 20 and page.locator(".words").is_visible()
    ids = [int(text) for text in page.locator(".op.core .id").all_text_contents()]
    steps = [element.get_attribute("class").split()[1] for element in page.locator(".step").all()]
    assert operations is None or sorted(ids) == operations, ids
    assert reasons is None or sorted(steps) == sorted(reasons), steps
    assert len(ids) >= 2 and len(steps) >= 2, (ids, steps)
    # Each arrow has its number, its row in the table and its kind in the legend.
    assert page.locator(".number text").all_text_contents() == [str(n + 1) for n in range(len(steps))]
    rows = page.locator("table", has_text="The cycle").locator("tbody tr")
    assert rows.count() == len(steps) and all(row.is_visible() for row in rows.all())
    legend = [element.get_attribute("class") for element in page.locator(".legend g").all()]
    assert set(steps) <= set(legend), (steps, legend)
    patterns = {page.locator(f".legend .{kind} path").first.get_attribute("stroke-dasharray") for kind in set(steps)}
    assert len(patterns) == len(set(steps)), "without colours two kinds of reasons look the same"
    if name == "pending":
        assert page.locator(".op path.edge").count() == 2 and page.locator(".op.core path.edge").count() == 1
    if name == "services":
        assert page.locator(".names .service").count() == 2
    if name == "long":
        assert page.locator(".op").count() < 100 and "other operations are not shown" in page.locator("figcaption").inner_text()
    wrong = page.evaluate(INSPECT)
    if SHOTS:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{page_file.stem}-{view['width']}-{scheme}.png", full_page=True)
    assert not wrong, "\n".join(wrong)
    assert not noise, noise
    assert requests == [page_file.as_uri()], f"the page asks for more than itself: {requests}"
    # What does not fit a phone is reached by scrolling the figure, by touch or by keys.
    box = page.locator(".scroll")
    box.focus()
    page.keyboard.press("End")
    assert box.evaluate("e => e.scrollWidth <= e.clientWidth || getComputedStyle(e).overflowX === 'auto'")
    assert page.locator(".names").first.evaluate("e => getComputedStyle(e).position") == "sticky"
    context.close()


def main():
    passed = failed = 0
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    views = [({"width": 1280, "height": 800}, "light"), ({"width": 390, "height": 844}, "dark")]
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for case in CASES:
            name, model, text = case[:3]
            events = history(text) if text else long_history() if name == "long" else evil_history()
            try:
                page = explain(pathlib.Path(directory), name, model, events)
                for view, scheme in views:
                    look(browser, page, case, view, scheme)
                passed += 1
                print(f"ok    {name}", flush=True)
            except Exception:
                failed += 1
                print(f"FAIL  {name}\n{traceback.format_exc()}", flush=True)
        browser.close()
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
