"""Stands in for a node of Meridian: a server of RESP whose connections remember words that they have seen."""

import socketserver
import threading


class StandIn:
    """Serves until the block ends. A token is what a connection has seen, with dashes between: `SEE word` makes it see more, `SEEN`
    tells all.

    `BEGIN` opens a transaction, in which no context is told or taken; `DROP` breaks the connection; tokens that begin with `bad`
    are refused.
    """

    def __enter__(self):
        self.connections = 0
        self.commands = []
        stand_in = self

        class Connection(socketserver.StreamRequestHandler):
            def handle(self):
                stand_in.connections += 1
                seen, is_open = set(), False
                while words := self.command():
                    verb, *more = words
                    stand_in.commands.append(" ".join(words))
                    if verb == "DROP":
                        return
                    answer = "+OK"
                    if verb == "MERIDIAN.CONTEXT" and is_open:
                        answer = "-ERR MERIDIAN.CONTEXT is not served inside a transaction"
                    elif verb == "MERIDIAN.CONTEXT":
                        how, *token = more
                        words = set(token[0].split("-")) if token else set()
                        if token and token[0].startswith("bad"):
                            answer = "-BADTOKEN it is not base64url, or cut off: pass it on as it was given"
                        elif how == "GET":
                            answer = "+" + ("-".join(sorted(seen)) or "nothing")
                        else:
                            seen = (seen if how == "MERGE" else set()) | words - {"nothing"}
                    elif verb == "SEE":
                        seen = seen | set(more)
                    elif verb == "SEEN":
                        answer = "+" + " ".join(sorted(seen))
                    elif verb == "BEGIN":
                        is_open = True
                    self.wfile.write(answer.encode() + b"\r\n")

            def command(self):
                line = self.rfile.readline()
                if not line.startswith(b"*"):
                    return None
                words = []
                for _ in range(int(line[1:])):
                    length = int(self.rfile.readline()[1:])
                    words.append(self.rfile.read(length + 2)[:-2].decode())
                return words

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Connection)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def told(self):
        """The commands about contexts so far."""
        return [command.removeprefix("MERIDIAN.CONTEXT ") for command in self.commands if command.startswith("MERIDIAN")]
