"""Contexts in headers."""

import unittest

from meridian_context import HEADER, LENGTH_MAX, Context, ContextTooLong, absorb, current, outgoing, use

ONE, TWO, THREE = "aGVsbG8", "d29ybGQ_-", "dGhyZWU"


class Headers(unittest.TestCase):
    def test_a_context_comes_through_baggage(self):
        self.assertEqual(Context((ONE,)).into_baggage(), f"meridian={ONE}")
        both = Context((ONE, TWO))
        self.assertEqual(Context.of_baggage(both.into_baggage()), both)
        spaced = f"user = 7 , meridian = {ONE} ;ttl=3,other=1"
        self.assertEqual(Context.of_baggage(spaced), Context((ONE,)))

    def test_what_others_have_put_into_baggage_stays(self):
        header = Context((TWO,)).into_baggage(f"user=7;x=y, meridian={ONE}, other=1")
        self.assertEqual(header, f"meridian={TWO},user=7;x=y,other=1")
        self.assertEqual(Context().into_baggage("user=7"), "user=7")
        long = ",".join(f"m{number}={'x' * 100}" for number in range(100))
        header = Context((ONE,)).into_baggage(f"meridian={'x' * 3000},{long}")
        self.assertLessEqual(len(header), 8192)
        self.assertGreater(len(header), 8192 - 105, "there was room for more")

    def test_nonsense_is_no_context(self):
        for text in (None, "", " ", "a b", "a\r\nSet-Cookie: x", "x" * 3000, "ä", "=", "..."):
            self.assertFalse(Context.of(text), text)
        self.assertEqual(Context.of(f"{ONE}.{ONE}..a b.{TWO}"), Context((ONE, TWO)))

    def test_what_is_too_long_is_not_sent_and_not_cut(self):
        def full(count):
            return Context(tuple(f"{number}".rjust(1024, "t") for number in range(count)))

        self.assertEqual(Context.of_baggage(full(3).into_baggage()), full(3))
        # Whoever made it, the next session merges it: it is only not sent on as it is.
        self.assertEqual(len(Context.of(str(full(9))).tokens), 9)
        with self.assertRaisesRegex(ContextTooLong, f"4 tokens has 4099 characters, and {LENGTH_MAX} is the most"):
            full(4).into_baggage()
        with use(full(3)):
            absorb({HEADER: "x" * 1024})
            self.assertEqual(len(current().tokens), 4, "none is left out")
            self.assertRaises(ContextTooLong, outgoing)

    def test_a_process_passes_on_what_it_has_got(self):
        with use(Context((ONE,))):
            self.assertEqual(outgoing(), {"baggage": f"meridian={ONE}"})
            absorb({HEADER: TWO})
            self.assertEqual(outgoing({"Baggage": "user=7"}), {"Baggage": f"meridian={ONE}.{TWO},user=7"})
        self.assertEqual(outgoing(), {})
        absorb({HEADER: TWO})
        self.assertFalse(current(), "outside of a request nothing is kept")

    def test_an_answer_takes_the_place_of_what_its_request_told(self):
        with use(Context((ONE,))):
            first, second = outgoing({"Baggage": "user=7"}), outgoing()
            absorb({HEADER: TWO}, sent=first)
            self.assertEqual(current(), Context((TWO,)))
            # What came meanwhile was not told to this one.
            absorb({HEADER: THREE}, sent=second)
            self.assertEqual(current(), Context((TWO, THREE)))
            absorb({}, sent=outgoing())
            self.assertEqual(current(), Context((TWO, THREE)), "the other side had nothing to add")
            absorb({HEADER: ""}, sent=outgoing())
            self.assertFalse(current(), "the other side has refused it")


if __name__ == "__main__":
    unittest.main()
