"""What a web server answers to requests that are not as they should be; no database is needed."""

import io
import json
import unittest

import web

PNG = b"\x89PNG and so on"


class NoStore:
    """Whoever gets as far as the database has not been refused."""

    def request(self):
        raise AssertionError("it was not refused")


class Refusals(unittest.TestCase):
    def post(self, body, **environ):
        """Status and error."""
        told = []
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/albums/a", "QUERY_STRING": "id=p", "wsgi.input": io.BytesIO(body), **environ}
        pieces = web.Application(NoStore(), "ca", {})(environ, lambda status, _: told.append(status))
        return told[0], json.loads(b"".join(pieces))["error"]

    def test_a_length_that_is_none(self):
        for length in ("abc", "-1", "+5", "5_0", " 5", "٣", "1.5", "0x10", "9" * 5_000):
            status, error = self.post(PNG, CONTENT_LENGTH=length)
            self.assertEqual(status, "400 Bad Request", length)
            self.assertRegex(error, r"^a Content-Length of '.{1,80}' is no number of bytes: say one of 1 to \d+$")

    def test_a_length_that_is_missing_too_large_or_not_true(self):
        for length, status, why in (
            ("", "411 Length Required", "say how long the photo is"),
            (str(web.LARGEST + 1), "413 Content Too Large", f"has {web.LARGEST} bytes at most, not {web.LARGEST + 1}: send a smaller one"),
            (str(len(PNG) + 1), "400 Bad Request", f"only {len(PNG)} of {len(PNG) + 1} bytes have come"),
            ("0", "415 Unsupported Media Type", "a photo is a JPEG or a PNG"),
        ):
            told, error = self.post(PNG, CONTENT_LENGTH=length)
            self.assertEqual(told, status)
            self.assertIn(why, error)
        with self.assertRaisesRegex(AssertionError, "it was not refused"):
            self.post(PNG, CONTENT_LENGTH=str(len(PNG)))


if __name__ == "__main__":
    unittest.main()
