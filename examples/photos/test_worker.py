"""What a worker does with photos that are none; no database is needed."""

import contextlib
import io
import struct
import unittest
import zlib
from unittest import mock

import worker
from PIL import Image


def png(width, height):
    """The head of one, and nothing that it promises."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))


class Photos(unittest.TestCase):
    def work(self, data):
        """What a worker says about a photo, and the thumbnail that it leaves."""
        client, request = mock.Mock(), mock.Mock()
        client.lindex.return_value = b"p"
        request.use.return_value, request.photo.return_value = client, data
        store = mock.Mock(request=lambda: contextlib.nullcontext(request))
        done = worker.work(store, "thumbs:ca:0", 0)
        client.lrem.assert_called_once_with("thumbs:ca:0", 1, "p")
        (key, small), _ = client.set.call_args
        self.assertEqual(key, "thumb:p")
        return done, Image.open(io.BytesIO(small))

    def test_what_is_no_photo_gets_a_thumbnail_that_is_none_and_the_worker_goes_on(self):
        for data in (b"\xff\xd8 no more", b"\x89PNG", png(30, 30), png(30_000, 30_000), png(30, 30)[:20]):
            done, small = self.work(data)
            self.assertEqual((done["refused"], small.size), ("p", (160, 120)), data)
            self.assertTrue(done["why"])

    def test_a_photo_gets_a_small_one(self):
        out = io.BytesIO()
        Image.new("RGB", (640, 320), "teal").save(out, "PNG")
        done, small = self.work(out.getvalue())
        self.assertEqual((done, small.size), ({"thumb": "p", "missing": 0}, (160, 80)))


if __name__ == "__main__":
    unittest.main()
