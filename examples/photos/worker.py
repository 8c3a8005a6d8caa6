"""Makes thumbnails: takes ids from the queue, reads photos, writes thumbnails. Tells what it did in lines of JSON.

usage: worker.py --meridian PORT --name NAME --photos DB --queue DB [--threads 8] [--no-fences]

An id that it has taken stays in a list of its own until the thumbnail is there, so that it is not lost if the worker dies: whoever starts under the
same name goes on with it. That a photo has no data although its id was in the queue breaks invariant I2 of the paper.
"""

import argparse
import io
import json
import sys
import threading
import time

import redis
from PIL import Image
from store import QUEUE, Store

SIZE = (160, 160)


def jpeg(image):
    out = io.BytesIO()
    image.save(out, "JPEG")
    return out.getvalue()


def thumbnail(data):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    image.thumbnail(SIZE)
    return jpeg(image)


# The thumbnail of what is no photo.
UNREADABLE = jpeg(Image.new("RGB", (160, 120), "grey"))


def work(store, mine, after):
    """Takes one id and makes its thumbnail; answers how often its photo was not there."""
    missing = 0
    with store.request() as request:
        queue = request.use("queue")
        photo = queue.lindex(mine, 0) or queue.blmove(QUEUE, mine, 5, "LEFT", "RIGHT")
        if photo is None:
            return None
        photo = photo.decode()
        while (data := request.photo(photo)) is None:
            missing += 1
            time.sleep(after)
        try:
            small, done = thumbnail(data), {"thumb": photo, "missing": missing}
        except Exception as error:  # of many kinds, as the bytes are a stranger's
            # Whoever tried it again would find the same, and nobody should wait for it.
            small, done = UNREADABLE, {"refused": photo, "why": str(error)}
        request.use("photos").set(f"thumb:{photo}", small)
        request.use("queue").lrem(mine, 1, photo)
    return done


def go_on(store, mine):
    while True:
        try:
            done = work(store, mine, 0.02)
        except redis.RedisError as error:
            done = {"error": str(error)}
            time.sleep(0.5)
        if done:
            # In one piece, as there are several threads.
            sys.stdout.write(json.dumps(done) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--meridian", type=int, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--photos", type=int, required=True)
    parser.add_argument("--queue", type=int, required=True)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--no-fences", action="store_true")
    args = parser.parse_args()
    store = Store(args.meridian, args.photos, args.queue, fences=not args.no_fences, contexts=False)
    print("ready", flush=True)
    for number in range(args.threads):
        threading.Thread(target=go_on, args=(store, f"thumbs:{args.name}:{number}")).start()


if __name__ == "__main__":
    main()
