//! When operations are due: as soon as there is room (closed loop), or at a given rate whatever the server does
//! (open loop).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// One client's supply of times.
#[derive(Clone, Debug)]
pub(super) enum Due {
    /// Whenever the window has room.
    Closed,
    /// When the schedule says so.
    Open(Rc<Slot>),
}

/// Operations that are due at one client and not yet sent.
#[derive(Debug, Default)]
pub(super) struct Slot {
    times: RefCell<VecDeque<Instant>>,
    bell: Notify,
}

impl Due {
    /// When the next operation should have been sent, if one is due; `now` in a closed loop.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Closed => Some(now),
            Self::Open(slot) => slot.times.borrow_mut().pop_front(),
        }
    }

    /// Waits until more is due; for ever in a closed loop.
    pub(super) async fn changed(&self) {
        match self {
            Self::Closed => std::future::pending().await,
            Self::Open(slot) => slot.bell.notified().await,
        }
    }

    /// How many operations are due and unsent.
    pub(super) fn left(&self) -> u64 {
        match self {
            Self::Closed => 0,
            Self::Open(slot) => slot.times.borrow().len() as u64,
        }
    }
}

/// How often a schedule is looked at: operations due within this time are handed out together, late by at most
/// as much. The runtime's own timers are ten times as coarse, so a thread sleeps instead.
const GRAIN: Duration = Duration::from_micros(100);

/// Deals out `rate` operations a second from `start` to `end`, evenly spaced, to the clients in turn.
pub(super) async fn deal(slots: Vec<Rc<Slot>>, rate: f64, start: Instant, end: Instant) {
    let (ticks, mut ticked) = watch::channel(());
    std::thread::spawn(move || {
        // Ends with the schedule, or when nobody listens any more.
        while Instant::now() < end && ticks.send(()).is_ok() {
            std::thread::sleep(GRAIN);
        }
    });
    let mut dealt = 0_u64;
    let mut over = false;
    while !over {
        // However late the last tick is, what was due by the end is dealt out.
        over = ticked.changed().await.is_err();
        let now = if over { end } else { Instant::now().min(end) };
        let due = (now.saturating_duration_since(start).as_secs_f64() * rate) as u64;
        while dealt < due {
            let slot = &slots[(dealt % slots.len() as u64) as usize];
            slot.times.borrow_mut().push_back(start + Duration::from_secs_f64(dealt as f64 / rate));
            slot.bell.notify_one();
            dealt += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_is_even_and_whole() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let slots: Vec<Rc<Slot>> = (0..3).map(|_| Rc::default()).collect();
        let start = Instant::now();
        let end = start + Duration::from_millis(100);
        runtime.block_on(deal(slots.clone(), 3_000.0, start, end));
        let counts: Vec<u64> = slots.iter().map(|slot| Due::Open(Rc::clone(slot)).left()).collect();
        let total: u64 = counts.iter().sum();
        assert!((299..=300).contains(&total), "rounding may take one: {counts:?}");
        let times = slots[1].times.borrow();
        let first = times.front().unwrap().duration_since(start).as_secs_f64();
        assert!((first - 1.0 / 3_000.0).abs() < 1e-6, "{first}");
        assert!(
            times.iter().zip(times.iter().skip(1)).all(|(a, b)| (*b - *a).as_micros().abs_diff(1_000) <= 1)
        );
    }
}
