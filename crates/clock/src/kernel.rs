//! The kernel's own estimate: the time and its maximum error, of one call.

use crate::Reading;
use meridian_protocol::clock::Micros;

/// The clock and its maximum error; `None` if the kernel does not tell. The error is `None` while no daemon disciplines
/// the clock: then the kernel says so (`STA_UNSYNC`), and what it still shows is no bound.
pub(crate) fn read() -> Option<Reading> {
    // SAFETY: `timex` is a plain C struct of integers for which all zeros is a value; `modes == 0` makes the call only
    // fill it in, through a pointer that is valid and exclusive for as long as it lasts.
    #[expect(unsafe_code, reason = "adjtimex has no safe wrapper")]
    let (state, time) = unsafe {
        let mut time: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut time), time)
    };
    reading(state, &time)
}

fn reading(state: libc::c_int, time: &libc::timex) -> Option<Reading> {
    if state < 0 {
        return None;
    }
    // With STA_NANO the fraction counts nanoseconds, otherwise microseconds.
    let unit = if time.status & libc::STA_NANO == 0 { 1 } else { 1_000 };
    let wall = time.time.tv_sec as Micros * 1_000_000 + time.time.tv_usec as Micros / unit;
    let disciplined = state != libc::TIME_ERROR && time.status & libc::STA_UNSYNC == 0;
    Some(Reading { wall, error: disciplined.then_some(time.maxerror as Micros) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(status: libc::c_int) -> libc::timex {
        // SAFETY: as in `read`.
        #[expect(unsafe_code, reason = "the struct has private padding")]
        let mut time: libc::timex = unsafe { std::mem::zeroed() };
        (time.status, time.maxerror) = (status, 1_500);
        (time.time.tv_sec, time.time.tv_usec) = (7, 250_000);
        time
    }

    #[test]
    fn a_disciplined_clock_has_a_bound_and_another_has_none() {
        let good = Reading { wall: 7_250_000, error: Some(1_500) };
        assert_eq!(reading(libc::TIME_OK, &time(libc::STA_PLL)), Some(good));
        assert_eq!(reading(libc::TIME_OK, &time(libc::STA_UNSYNC)).unwrap().error, None);
        assert_eq!(reading(libc::TIME_ERROR, &time(libc::STA_PLL)).unwrap().error, None);
        assert_eq!(reading(-1, &time(libc::STA_PLL)), None);
        let nanos = reading(libc::TIME_OK, &time(libc::STA_PLL | libc::STA_NANO)).unwrap();
        assert_eq!(nanos.wall, 7_000_250);
    }
}
