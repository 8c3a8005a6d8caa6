#!/usr/bin/env python3
"""The photo-sharing application in a real browser: a photo is added, both people see it, its thumbnail appears; an answer is lost, a context refused.

usage: photos.py PATH/TO/meridian [DIRECTORY FOR SCREENSHOTS]
"""

import argparse
import pathlib
import shutil
import sys
import tempfile
from contextlib import ExitStack

from playwright.sync_api import expect, sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples/photos"))
import run  # noqa: E402

MERIDIAN = sys.argv[1] if len(sys.argv) in (2, 3) else sys.exit(__doc__)
SHOTS = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else None
SECONDS = 1_000


def opened(context, url, album):
    """The page with that album, and what its console says."""
    page = context.new_page()
    noise = []
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.goto(url)
    expect(page.locator("#alice .region")).to_have_text("ca")
    expect(page.locator("#bob .region")).to_have_text("va")
    page.fill("#album", album)
    page.locator("#album").dispatch_event("change")
    return page, noise


def use(browser, url, scheme, view, shot):
    context = browser.new_context(viewport=view, color_scheme=scheme)
    page, noise = opened(context, url, f"test-{scheme}")
    page.fill("#title", "<b>Sunset</b>")
    page.click("#send")
    expect(page.locator("#alice .status")).to_contain_text("choose a JPEG")
    page.click("#paint")
    expect(page.locator("#bob .status")).to_contain_text("sees it", timeout=30 * SECONDS)
    for side in ("#alice", "#bob"):
        photo = page.locator(f"{side} .photos li")
        expect(photo).to_have_count(1)
        expect(photo.locator("p")).to_have_text("<b>Sunset</b>")
        expect(photo.locator("img")).to_be_visible(timeout=30 * SECONDS)
        thumbnail = photo.locator("img").evaluate("async (image) => { await image.decode(); return [image.naturalWidth, image.naturalHeight]; }")
        assert thumbnail == [160, 120], thumbnail
    link = page.locator("#bob .photos a").get_attribute("href")
    whole = page.evaluate("async (url) => { const image = new Image(); image.src = url; await image.decode(); return image.naturalWidth; }", link)
    assert whole == 640, whole
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the view"
    if SHOTS:
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"photos-{shot}.png")
    # One that cannot be read is refused, and the page says so.
    page.set_input_files("#file", files=[{"name": "x.jpg", "mimeType": "image/jpeg", "buffer": b"no photo"}])
    page.click("#send")
    expect(page.locator("#alice .status")).to_contain_text("a photo is a JPEG or a PNG")
    with tempfile.NamedTemporaryFile(suffix=".jpg") as large:
        large.truncate(20 << 20)
        page.set_input_files("#file", large.name)
        page.click("#send")
        expect(page.locator("#alice .status")).to_contain_text("a photo has 4194304 bytes at most", timeout=30 * SECONDS)
    said = [line for line in noise if "415" not in line and "413" not in line]
    assert not said, said
    context.close()


def lose_an_answer(browser, url):
    """The paper's anomaly A4: the server has added a photo, and its answer is lost. The page says so and tries again; there is one photo."""
    context = browser.new_context()
    page, noise = opened(context, url, "lost")
    posts = []
    network = context.new_cdp_session(page)

    def answered(event):
        request = event["request"]
        if request["method"] == "POST":
            posts.append((request["url"], event.get("responseStatusCode")))
        if request["method"] == "POST" and len(posts) == 1:
            network.send("Fetch.failRequest", {"requestId": event["requestId"], "errorReason": "ConnectionReset"})
        else:
            network.send("Fetch.continueRequest", {"requestId": event["requestId"]})

    network.on("Fetch.requestPaused", answered)
    network.send("Fetch.enable", {"patterns": [{"urlPattern": "*/albums/*", "requestStage": "Response"}]})
    # It says so for half a second.
    page.evaluate(
        """() => {
            const status = document.querySelector("#alice .status");
            window.said = [];
            new MutationObserver(() => said.push(status.textContent)).observe(status, { childList: true });
        }"""
    )
    page.click("#paint")
    expect(page.locator("#bob .status")).to_contain_text("sees it", timeout=30 * SECONDS)
    said = page.evaluate("said")
    assert said[:2] == ["adding …", "no answer (Failed to fetch): trying again"], said
    assert said[2].startswith("added in ") and said[2].endswith(" ms, at the second try"), said
    assert [status for _, status in posts] == [200, 200], posts
    for side in (0, 1):
        found = page.evaluate("async (side) => (await look(sides[side])).photos.map((photo) => photo.title)", side)
        assert found == ["Painted"], found
    assert all("ERR_CONNECTION_RESET" in line for line in noise), noise
    context.close()


def fail_to_look(browser, url):
    """Looks that fail are told in a line that goes when one has ended well, and the page looks on; unless the next one would fail as well."""
    context = browser.new_context()
    page, noise = opened(context, url, "failing")
    page.click("#paint")
    expect(page.locator("#bob img")).to_be_visible(timeout=30 * SECONDS)
    sees = page.locator("#bob .status").text_content()
    page.evaluate(
        """() => {
            const trouble = document.querySelector("#bob .trouble");
            window.said = [];
            new MutationObserver(() => said.push(trouble.textContent)).observe(trouble, { childList: true });
        }"""
    )
    failures = ["gone", "busy", "garbled"]

    def fail(route):
        match failures.pop(0) if failures else None:
            case "gone":
                route.abort("connectionrefused")
            case "busy":
                route.fulfill(status=504, json={"error": "no answer within 30 s"}, headers={"Access-Control-Allow-Origin": "*"})
            case "garbled":
                # Half an answer.
                route.fulfill(status=200, body='{"photos": [', headers={"Access-Control-Allow-Origin": "*"})
            case None:
                route.continue_()

    bob = page.evaluate("sides[1].url")
    page.route(f"{bob}/albums/*", fail)
    page.locator("#bob .photos").evaluate("(list) => list.replaceChildren()")
    page.locator("#album").dispatch_event("change")
    expect(page.locator("#bob .photos li")).to_have_count(1, timeout=30 * SECONDS)
    expect(page.locator("#bob .trouble")).to_be_hidden()
    said = page.evaluate("said")
    assert said[:2] == [f"no answer ({why}): looking again" for why in ("Failed to fetch", "no answer within 30 s")], said
    assert said[2].endswith(": looking again") and said[3:] == [""], said
    assert page.locator("#bob .status").text_content() == sees, "what became of the photo is no longer told"
    page.fill("#album", "no name")
    page.locator("#album").dispatch_event("change")
    for side in ("#alice", "#bob"):
        expect(page.locator(f"{side} .trouble")).to_have_text("'no name' is no name: use letters, digits, - and _, 64 at most")
    page.fill("#album", "failing")
    page.locator("#album").dispatch_event("change")
    for side in ("#alice", "#bob"):
        expect(page.locator(f"{side} .trouble")).to_be_hidden()
    # A look that a newer one has overtaken shows nothing any more.
    held = []
    page.route(f"{bob}/albums/slow", lambda route: held.append(route))
    with page.expect_request(f"{bob}/albums/slow"):
        page.fill("#album", "slow")
        page.locator("#album").dispatch_event("change")
    expect(page.locator("#alice .photos li")).to_have_count(0)
    page.fill("#album", "failing")
    page.locator("#album").dispatch_event("change")
    expect(page.locator("#alice .photos li")).to_have_count(1)
    # The answer counts once a later one has been taken in.
    page.evaluate("window.before = sides[1].turn")
    with page.expect_response(f"{bob}/albums/slow"):
        held[0].fulfill(status=200, json={"photos": []}, headers={"Access-Control-Allow-Origin": "*"})
    page.evaluate("async () => { await ask(sides[1].url + '/here'); }")
    expect(page.locator("#bob .photos li")).to_have_count(1)
    assert page.evaluate("window.before === sides[1].turn"), "somebody else has looked"
    assert all(any(status in line for status in ("REFUSED", "504", "400")) for line in noise), noise
    context.close()


def refuse_a_context(browser, url):
    """A context that is no good any more, as after an hour, is dropped, and the page goes on as if it had none."""
    context = browser.new_context()
    page, noise = opened(context, url, "refused")
    expect(page.locator("#bob .status")).to_be_empty()
    page.evaluate("context = ['AZ-corrupted']")
    page.click("#paint")
    expect(page.locator("#bob .status")).to_contain_text("sees it", timeout=30 * SECONDS)
    told = page.locator("#alice .status").text_content()
    assert told.startswith("added in ") and "try" not in told, told
    assert "AZ-corrupted" not in page.evaluate("context"), "the page keeps what was refused"
    # The browser itself says that there was an answer of 400.
    assert [line for line in noise if "400" in line] and all("400" in line for line in noise), noise
    context.close()


def main():
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    args = argparse.Namespace(
        model="rss", no_fences=False, no_contexts=False, meridian=MERIDIAN, rtt="paper", port=0,
    )
    with ExitStack() as stack:
        web, _, _ = run.start(stack, args)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
            use(browser, web[0], "light", {"width": 1280, "height": 800}, "wide")
            use(browser, web[0], "dark", {"width": 390, "height": 844}, "narrow")
            lose_an_answer(browser, web[0])
            fail_to_look(browser, web[0])
            refuse_a_context(browser, web[0])
            browser.close()
    print("5 passed, 0 failed")


if __name__ == "__main__":
    main()
