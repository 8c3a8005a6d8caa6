"""What the application keeps where, and the transactions that it makes: section 2.2 of the RSS paper.

Photos and albums are in a transactional keyspace: `photo:ID` is an image, `thumb:ID` its thumbnail, and the hash `album:NAME` tells by id what is
in an album. Ids of photos whose thumbnails are to be made wait in the list `thumbs` of a second keyspace, the queue.
"""

import json
from contextlib import contextmanager

import redis
from meridian_context import session

QUEUE = "thumbs"


class Store:
    """Both keyspaces, as one process of the application sees them from its region.

    With `fences` a request uses both over one connection, so that Meridian fences one before it goes to the other. Without, each has a connection
    of its own, and nothing ties them together. With `contexts` a request comes after all that whoever sent it has seen.
    """

    def __init__(self, port, photos, queue, fences=True, contexts=True, timeout=30):
        self.fences, self.contexts = fences, contexts
        self.databases = {"photos": photos, "queue": queue}
        options = {"port": port, "socket_timeout": timeout, "protocol": 3}
        self.pools = {name: redis.Redis(db=db, **options) for name, db in self.databases.items()}

    @contextmanager
    def request(self):
        """The keyspaces for one request."""
        if not self.fences:
            yield Request(self.pools.__getitem__)
            return
        with session(self.pools["photos"], export=self.contexts) as client:

            # All who take connections from this pool say which keyspace they want.
            def select(name):
                client.execute_command("SELECT", self.databases[name])
                return client

            yield Request(select)


class Request:
    """One request's reads and writes."""

    def __init__(self, use):
        self.use = use

    def add(self, album, photo, data, about):
        """Adds a photo to an album, in one transaction, and asks for its thumbnail. Done again with the same id, it adds nothing."""
        transaction = self.use("photos").pipeline(transaction=True)
        transaction.set(f"photo:{photo}", data)
        transaction.hset(f"album:{album}", photo, json.dumps(about))
        transaction.execute()
        self.use("queue").rpush(QUEUE, photo)

    def album(self, album):
        """What is in an album, in the order in which it was added, and which of it has a thumbnail."""
        client = self.use("photos")
        found = client.hgetall(f"album:{album}")
        photos = sorted((json.loads(about) | {"id": photo.decode()} for photo, about in found.items()), key=lambda one: one["at"])
        thumbs = client.mget([f"thumb:{photo['id']}" for photo in photos]) if photos else []
        return [photo | {"thumb": thumb is not None} for photo, thumb in zip(photos, thumbs)]

    def whole_album(self, album):
        """The ids in an album and those of them without data, from one snapshot."""
        # A transaction is its connection's: what a pool lends others meanwhile must not be in it.
        with self.use("photos").client() as client:
            client.execute_command("MERIDIAN.BEGIN", "RO")
            try:
                ids = [photo.decode() for photo in client.hkeys(f"album:{album}")]
                data = client.mget([f"photo:{photo}" for photo in ids]) if ids else []
            finally:
                client.execute_command("MERIDIAN.COMMIT")
        return ids, [photo for photo, one in zip(ids, data) if one is None]

    def photo(self, photo):
        return self.use("photos").get(f"photo:{photo}")

    def thumb(self, photo):
        return self.use("photos").get(f"thumb:{photo}")
