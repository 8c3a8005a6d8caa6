"""On which connections transactions run; no database is needed."""

import itertools
import unittest
from unittest import mock

import redis
import store
from redis.backoff import NoBackoff
from redis.retry import Retry


class Pool:
    """Lends another connection each time, as a pool does that others use too. `said` has what was said on which."""

    connection_kwargs = {}

    def __init__(self):
        self.said, self.numbers, self.lent = [], itertools.count(), 0

    def get_connection(self, *_args, **_options):
        self.lent += 1
        connection = mock.Mock(retry=Retry(NoBackoff(), 0), number=next(self.numbers))
        connection.send_command.side_effect = lambda *words, **_: self.said.append((connection.number, words[0]))
        connection.read_response.side_effect = lambda *_, **__: [b"p"]
        return connection

    def release(self, _connection):
        self.lent -= 1

    def get_protocol(self):
        return 3

    def __getattr__(self, name):
        return mock.Mock()


class Transactions(unittest.TestCase):
    def test_one_snapshot_is_read_on_one_connection_which_goes_back(self):
        keyspaces = store.Store(1, 0, 1, fences=False, contexts=False)
        pool = Pool()
        keyspaces.pools["photos"] = redis.Redis(connection_pool=pool)
        with keyspaces.request() as request:
            self.assertEqual(request.whole_album("a"), (["p"], []))
        self.assertEqual([word for _, word in pool.said], ["MERIDIAN.BEGIN", "HKEYS", "MGET", "MERIDIAN.COMMIT"])
        self.assertEqual((len({number for number, _ in pool.said}), pool.lent), (1, 0))


if __name__ == "__main__":
    unittest.main()
