//! Connections that are ended so that others are served: those that ask for nothing, take nothing, do not say who they are, or
//! hold too much.

use super::Node;
use crate::session::SessionId;
use meridian_protocol::clock::Micros;

/// Why a connection is ended without having asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// It has asked for nothing for long: `timeout`.
    Idle,
    /// It does not take its answers: `[limits] stall`.
    Stalled,
    /// It has not said who it is: `[limits] authentication`.
    Stranger,
    /// It holds most of what all clients together may: `maxmemory-clients`.
    Large,
}

impl Node {
    /// Ends the connections that are to be ended now.
    pub(super) fn guard(&mut self, now: Micros) {
        let tunables = self.core.shared.tunables.clone();
        let limits = self.config.limits;
        let past = |since: Micros, micros: u128| u128::from(now.saturating_sub(since)) > micros;
        let mut ended: Vec<(SessionId, Reason)> = Vec::new();
        let mut held: Vec<(usize, SessionId)> = Vec::new();
        for connection in self.connections.iter().flatten() {
            let session = &connection.session;
            let idle = u128::from(tunables.timeout_s) * 1_000_000;
            let stranger = || self.core.shared.users.is_nobody(session.user());
            let reason = if idle > 0 && session.idle_since().is_some_and(|since| past(since, idle)) {
                Reason::Idle
            } else if connection.stuck.is_some_and(|since| past(since, limits.stall.as_micros())) {
                Reason::Stalled
            } else if past(connection.since, limits.authentication.as_micros()) && stranger() {
                Reason::Stranger
            } else {
                held.push((session.held(), connection.id));
                continue;
            };
            ended.push((connection.id, reason));
        }
        let most = usize::try_from(tunables.max_memory_clients).unwrap_or(usize::MAX);
        if most > 0 {
            ended.extend(too_large(held, most).map(|id| (id, Reason::Large)));
        }
        for (id, reason) in ended {
            self.end(id, reason);
        }
    }

    fn end(&mut self, id: SessionId, reason: Reason) {
        let shared = &mut self.core.shared;
        let peer = shared.clients.get(id).map(|info| info.peer.clone()).unwrap_or_default();
        let why = match reason {
            // As many as there may be, and asked for.
            Reason::Idle => None,
            Reason::Stalled => Some("it takes none of its answers ([limits] stall)"),
            Reason::Stranger => Some("it does not say who it is ([limits] authentication)"),
            Reason::Large => Some("clients hold more than maxmemory-clients, and it holds most"),
        };
        if let Some(why) = why {
            shared.counters.evicted += 1;
            let count = shared.counters.evicted;
            if count.is_power_of_two() {
                tracing::warn!("ended the connection of the client at {peer}: {why} ({count} so far)");
            }
        }
        self.close(id);
    }
}

/// Those that hold most, so many of them that the others hold no more than `most` together.
fn too_large(mut held: Vec<(usize, SessionId)>, most: usize) -> impl Iterator<Item = SessionId> {
    let mut sum: usize = held.iter().map(|(bytes, _)| bytes).sum();
    held.sort_unstable_by_key(|(bytes, id)| (std::cmp::Reverse(*bytes), id.serial));
    held.into_iter()
        .take_while(move |(bytes, _)| {
            let over = sum > most;
            sum -= bytes;
            over
        })
        .map(|(_, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_go_first_and_no_more_than_needed() {
        let id = |serial| SessionId { serial, slot: 0 };
        let ended = |held: &[usize], most| {
            let held = held.iter().zip(1..).map(|(bytes, serial)| (*bytes, id(serial))).collect();
            too_large(held, most).map(|id| id.serial).collect::<Vec<_>>()
        };
        assert_eq!(ended(&[5, 9, 1, 7], 22), [0; 0]);
        assert_eq!(ended(&[5, 9, 1, 7], 21), [2]);
        assert_eq!(ended(&[5, 9, 1, 7], 12), [2, 4]);
        assert_eq!(ended(&[5, 5], 0), [1, 2]);
    }
}
