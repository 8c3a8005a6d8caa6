"""What the driver counts, beside services that fail as they are told."""

import contextlib
import io
import threading
import time
import unittest
from unittest import mock

import drive
import redis


class Data:
    """Both keyspaces, of all that use them. Keys that begin with a letter in `lost` cannot be written."""

    def __init__(self, lost=""):
        self.lost, self.values = lost, {}

    def service(self, _port, _args):
        return self

    def use(self, _name):
        return self

    def close(self):
        pass

    def get(self, key):
        return self.values.get(key)

    def set(self, key, value):
        if key[0] in self.lost:
            raise redis.TimeoutError("no answer within 30 s")
        self.values[key] = value

    def mset(self, values):
        for key, value in values.items():
            self.set(key, value)


class Behind(Data):
    """Shows each observer what it asks for first, and not the other."""

    first = None

    def service(self, _port, _args):
        return Behind()

    def get(self, key):
        self.first = self.first or key
        return "new" if key == self.first else None


class Counts(unittest.TestCase):
    def setUp(self):
        args = ["--web", "http://a,http://b", "--meridian", "1,2,3", "--photos", "0", "--queue", "1"]
        self.driver = drive.Driver(drive.options().parse_args(args))
        self.enterContext(mock.patch.object(drive, "TRANSACTION", 0))

    def look(self, data):
        with mock.patch.object(drive, "Service", data.service):
            self.driver.opposite_orders()

    def test_a_look_at_both_is_counted(self):
        self.look(Data())
        self.assertEqual((self.driver.checked, self.driver.broken), ({"I3": 1}, {"I3": 0}))
        self.look(Behind())
        self.assertEqual((self.driver.checked, self.driver.broken), ({"I3": 2}, {"I3": 1}))
        self.assertEqual(self.driver.failed_writers, 0)

    def test_who_gave_up_has_not_looked_and_who_failed_to_write_says_why(self):
        self.enterContext(mock.patch.object(drive, "PATIENCE", 0.05))
        for lost in ("y", "xy"):
            with self.assertRaisesRegex(drive.NoAnswer, "an observer gave up"):
                self.look(Data(lost))
        self.assertEqual(self.driver.checked, {})
        self.assertEqual((self.driver.failed_writers, self.driver.first_failure), (3, "no answer within 30 s"))

    def test_every_photo_that_could_not_be_added_is_counted(self):
        def add(_browser, _server, _album, photo):
            raise drive.NoAnswer(f"photo:{photo} hung up")

        with mock.patch.object(drive.Browser, "add", add), self.assertRaises(drive.NoAnswer):
            self.driver.two_at_once()
        self.assertEqual((self.driver.failed_writers, self.driver.first_failure), (2, "photo:ID hung up"))

    @contextlib.contextmanager
    def scenes(self, scene):
        """All scenes are this one."""
        with contextlib.ExitStack() as changed:
            for name in ("see_and_call", "add_and_call", "opposite_orders", "two_at_once", "no_answer"):
                changed.enter_context(mock.patch.object(drive.Driver, name, scene))
            yield changed

    def test_one_that_fails_ends_all_and_after_an_interrupt_what_was_counted_is_told(self):
        first = threading.Lock()

        def scene(_driver):
            if first.acquire(blocking=False):
                raise AssertionError("500 Oops")
            time.sleep(0.01)

        with self.scenes(scene), self.assertRaisesRegex(AssertionError, "500 Oops"):
            self.driver.run()
        self.driver.over = False

        def interrupted(*_):
            while not self.driver.checked:
                time.sleep(0.01)
            raise KeyboardInterrupt

        def look(driver):
            time.sleep(0.01)
            driver.check("A2", False)

        said = io.StringIO()
        with self.scenes(look), mock.patch.object(drive, "wait", interrupted), contextlib.redirect_stderr(said):
            found = self.driver.run()
        self.assertIn("interrupted", said.getvalue())
        self.assertEqual((found["broken"], found["ms"]), ({"A2": 0}, {}))

    def test_whoever_waits_is_told_how_far_it_is(self):
        enough = threading.Event()

        def told(_driver, _seconds):
            enough.set()
            return "so far"

        def scene(driver):
            enough.wait()
            for name in ("A1", "A2", "A3", "A4", "I1", "I3", "I4"):
                driver.check(name, name == "A3")
            driver.took = {"add": [1], "view": [1]}

        self.driver.args.checks = 1
        self.driver.check("A3", False)
        self.assertEqual(self.driver.so_far(61.2), "after 61 s, of 1 looks each, broken: A3 0 of 1")
        with self.scenes(scene) as changed:
            changed.enter_context(mock.patch.object(drive, "PROGRESS", 0.01))
            changed.enter_context(mock.patch.object(drive.Driver, "so_far", told))
            said = changed.enter_context(contextlib.redirect_stderr(io.StringIO()))
            found = self.driver.run()
        self.assertIn("so far\n", said.getvalue())
        self.assertEqual((found["broken"]["A2"], found["broken"]["A3"] > 0), (0, True))

    def test_a_scene_that_is_never_answered_ends_the_drive(self):
        def scene():
            raise drive.NoAnswer("Connection refused")

        with mock.patch.object(drive, "HOPELESS", 0.3), self.assertRaisesRegex(SystemExit, "no scene of A2 .* 'Connection refused'"):
            self.driver.play(scene, "A2")
        self.assertLess(self.driver.unanswered["Connection refused"], 10, "it hurries")


if __name__ == "__main__":
    unittest.main()
