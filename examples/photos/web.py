"""A web server of the application. Any number of them may run, in any region.

usage: web.py --port HTTP --meridian PORT --region NAME --photos DB --queue DB [--no-fences] [--no-contexts] [--peers NAME=URL,...]
"""

import argparse
import json
import re
import socketserver
import time
from pathlib import Path
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import redis
from meridian_context import HEADER, ContextMiddleware, ContextRefused
from store import Store

PAGE = Path(__file__).parent / "page"
FILES = {"/": ("index.html", "text/html"), "/page.js": ("page.js", "text/javascript"), "/page.css": ("page.css", "text/css")}
LARGEST = 4 << 20
NAME = re.compile(r"[\w-]{1,64}\Z")
# Python's own `int` takes signs, blanks and underscores too.
LENGTH = re.compile(r"[0-9]{1,18}\Z")


class Refused(Exception):
    def __init__(self, status, why):
        super().__init__(why)
        self.status = status


def name(text):
    if not NAME.match(text):
        raise Refused("400 Bad Request", f"{text[:80]!r} is no name: use letters, digits, - and _, 64 at most")
    return text


def sent(environ):
    """The body of a request, all of it."""
    text = environ.get("CONTENT_LENGTH", "")
    if not text:
        raise Refused("411 Length Required", f"say how long the photo is: a Content-Length of 1 to {LARGEST}")
    if not LENGTH.match(text):
        raise Refused("400 Bad Request", f"a Content-Length of {text[:80]!r} is no number of bytes: say one of 1 to {LARGEST}")
    length = int(text)
    if length > LARGEST:
        raise Refused("413 Content Too Large", f"a photo has {LARGEST} bytes at most, not {length}: send a smaller one")
    data = environ["wsgi.input"].read(length)
    if len(data) < length:
        raise Refused("400 Bad Request", f"only {len(data)} of {length} bytes have come: send the photo again")
    return data


class Application:
    def __init__(self, store, region, peers):
        self.store, self.region, self.peers = store, region, peers

    def __call__(self, environ, start_response):
        try:
            kind, body = self.answer(environ)
            status = "200 OK"
        except Refused as refused:
            status, kind, body = refused.status, "application/json", said(error=str(refused))
        except ContextRefused as refused:
            # Nothing was done; the middleware tells the browser to drop what it has sent, and then it may try again.
            status, kind, body = "400 Bad Request", "application/json", said(error=str(refused))
        except redis.RedisError as error:
            # Nobody knows whether it was done: with the same id it may be tried again.
            status, kind, body = "504 Gateway Timeout", "application/json", said(error=str(error))
        # The page shows two servers side by side, and is of one of them.
        origin = {
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Allow-Headers": "baggage",
            "Access-Control-Expose-Headers": HEADER,
        }
        start_response(status, [("Content-Type", kind), ("Cache-Control", "no-store"), *origin.items()])
        return [body]

    def answer(self, environ):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        query = {key: values[0] for key, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        if method == "OPTIONS":
            return "text/plain", b""
        if method == "GET" and path in FILES:
            file, kind = FILES[path]
            return f"{kind}; charset=utf-8", (PAGE / file).read_bytes()
        match method, *path.strip("/").split("/"):
            case "GET", "here":
                return "application/json", said(region=self.region, peers=self.peers)
            case "GET", "albums", album:
                with self.store.request() as request:
                    if "whole" in query:
                        ids, empty = request.whole_album(name(album))
                        return "application/json", said(photos=ids, empty=empty)
                    return "application/json", said(region=self.region, photos=request.album(name(album)))
            case "POST", "albums", album:
                return "application/json", self.add(environ, name(album), query)
            case "GET", ("photos" | "thumbs") as what, photo:
                with self.store.request() as request:
                    data = request.photo(name(photo)) if what == "photos" else request.thumb(name(photo))
                if data is None:
                    raise Refused("404 Not Found", f"there is no {what[:-1]} {photo}")
                return "image/jpeg" if data[:2] == b"\xff\xd8" else "image/png", data
        raise Refused("404 Not Found", f"{method} {path} is not served")

    def add(self, environ, album, query):
        data = sent(environ)
        if not data.startswith((b"\xff\xd8", b"\x89PNG")):
            raise Refused("415 Unsupported Media Type", "a photo is a JPEG or a PNG")
        photo = name(query.get("id", ""))
        with self.store.request() as request:
            request.add(album, photo, data, {"title": query.get("title", "")[:80], "at": query.get("at", str(time.time()))})
        return said(id=photo)


def said(**what):
    return json.dumps(what).encode()


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 256


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--meridian", type=int, required=True)
    parser.add_argument("--region", required=True)
    parser.add_argument("--photos", type=int, required=True)
    parser.add_argument("--queue", type=int, required=True)
    parser.add_argument("--no-fences", action="store_true")
    parser.add_argument("--no-contexts", action="store_true")
    parser.add_argument("--peers", default="")
    args = parser.parse_args()
    contexts = not args.no_contexts and not args.no_fences
    store = Store(args.meridian, args.photos, args.queue, fences=not args.no_fences, contexts=contexts)
    peers = dict(peer.split("=", 1) for peer in args.peers.split(",") if peer)
    application = Application(store, args.region, peers)
    if contexts:
        application = ContextMiddleware(application)
    with make_server("127.0.0.1", args.port, application, Server, Quiet) as server:
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
