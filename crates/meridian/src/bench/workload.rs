//! What the clients do: which operation comes next, on which key, with which value.

use super::zipf::Zipf;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use smallvec::SmallVec;
use std::fmt::Write as _;
use std::str::FromStr;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// `GET key`.
    Get,
    /// `MGET` of several keys.
    Mget,
    /// `SET key value`.
    Set,
    /// `SET key value GET`: reads the old value and writes a new one in one step, whatever the type of server.
    Rmw,
    /// Retwis: adds a user. `MULTI`, one `GET`, three `SET`s and `EXEC`, of which the first is of the key that is read.
    AddUser,
    /// Retwis: follows or unfollows. Two keys are read and written.
    Follow,
    /// Retwis: posts. Three keys are read, they and two more are written.
    Post,
    /// Retwis: `MGET` of one to ten keys.
    Timeline,
}

impl Verb {
    /// Every verb, in the order of `--mix`.
    pub(super) const ALL: [Self; 8] = [
        Self::Get,
        Self::Mget,
        Self::Set,
        Self::Rmw,
        Self::AddUser,
        Self::Follow,
        Self::Post,
        Self::Timeline,
    ];

    /// The verb's name in the table and in the JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Mget => "mget",
            Self::Set => "set",
            Self::Rmw => "rmw",
            Self::AddUser => "add-user",
            Self::Follow => "follow",
            Self::Post => "post",
            Self::Timeline => "timeline",
        }
    }

    /// How many of an operation's `keys` it reads, from the first on.
    pub(super) fn reads(self, keys: usize) -> usize {
        match self {
            Self::Set => 0,
            Self::Get | Self::Rmw | Self::AddUser => 1,
            Self::Follow => 2,
            Self::Post => 3,
            Self::Mget | Self::Timeline => keys,
        }
    }

    /// How many of them it writes, from the first on.
    pub(super) fn writes(self) -> usize {
        match self {
            Self::Get | Self::Mget | Self::Timeline => 0,
            Self::Set | Self::Rmw => 1,
            Self::AddUser => 3,
            Self::Follow => 2,
            Self::Post => 5,
        }
    }

    /// Whether it is sent as `MULTI` to `EXEC`.
    pub(super) fn is_transaction(self) -> bool {
        matches!(self, Self::AddUser | Self::Follow | Self::Post)
    }
}

/// The shares of reads, writes and read-modify-writes, in any unit: `50:50:0`, `49.5:49.5:1`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mix([f64; 3]);

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shares: Result<Vec<f64>, _> = text.split(':').map(str::parse).collect();
        match shares.as_deref() {
            Ok(&[read, write, rmw]) => {
                let shares = [read, write, rmw];
                let sum: f64 = shares.iter().sum();
                if shares.iter().all(|share| *share >= 0.0) && sum > 0.0 && sum.is_finite() {
                    Ok(Self(shares.map(|share| share / sum)))
                } else {
                    Err("shares must not be negative, and not all zero".to_owned())
                }
            }
            _ => Err("give three numbers, READ:WRITE:RMW, such as 50:50:0".to_owned()),
        }
    }
}

/// What the operations are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Application {
    /// Operations in these shares, reads of so many keys, others of one.
    Registers(Mix, usize),
    /// The transactions of Retwis, a clone of Twitter, in the shares and sizes of the RSS/RSC paper's §6.
    Retwis,
}

/// The most keys that loading a timeline reads; at least one.
pub(super) const TIMELINE: usize = 10;

impl Application {
    /// What comes next, and of how many keys.
    fn draw(self, rng: &mut Pcg64Mcg) -> (Verb, usize) {
        let point: f64 = rng.random();
        let verb = match self {
            Self::Registers(Mix([read, ..]), 1) if point < read => Verb::Get,
            Self::Registers(Mix([read, ..]), keys) if point < read => return (Verb::Mget, keys),
            Self::Registers(Mix([read, write, _]), _) if point < read + write => Verb::Set,
            Self::Registers(..) => Verb::Rmw,
            Self::Retwis if point < 0.05 => Verb::AddUser,
            Self::Retwis if point < 0.2 => Verb::Follow,
            Self::Retwis if point < 0.5 => Verb::Post,
            Self::Retwis => return (Verb::Timeline, rng.random_range(1..=TIMELINE)),
        };
        (verb, verb.reads(1).max(verb.writes()))
    }
}

/// How keys are chosen.
#[derive(Clone, Debug)]
pub(super) enum Spread {
    /// Every key alike.
    Uniform,
    /// This share of operations goes to key 0, which all clients share; the rest to keys of the client's own.
    Conflict(f64),
    /// Skewed as in YCSB.
    Zipf(Zipf),
}

/// One operation, before it has a name on the wire.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// What to do.
    pub(super) verb: Verb,
    /// On which keys, all different.
    pub(super) keys: SmallVec<[u64; TIMELINE]>,
    /// Which of this client's operations it is: makes a written value unique.
    pub(super) sequence: u64,
}

/// One client's endless supply of operations, a function of its seed.
#[derive(Debug)]
pub(super) struct Workload {
    rng: Pcg64Mcg,
    application: Application,
    spread: Spread,
    keys: u64,
    client: u64,
    clients: u64,
    sequence: u64,
}

impl Workload {
    /// The operations of client number `client` of `clients`.
    pub(super) fn new(
        seed: u64,
        application: Application,
        spread: Spread,
        keys: u64,
        (client, clients): (u64, u64),
    ) -> Self {
        // Odd multiples of the golden ratio keep the streams of neighbouring clients and seeds apart.
        let rng = Pcg64Mcg::seed_from_u64(seed ^ (client + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Self { rng, application, spread, keys, client, clients, sequence: 0 }
    }

    /// The next operation.
    pub(super) fn draw(&mut self) -> Operation {
        self.sequence += 1;
        let (verb, count) = self.application.draw(&mut self.rng);
        let mut keys = SmallVec::new();
        while keys.len() < count {
            let key = self.key();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Operation { verb, keys, sequence: self.sequence }
    }

    fn key(&mut self) -> u64 {
        match &self.spread {
            Spread::Uniform => self.rng.random_range(0..self.keys),
            Spread::Zipf(zipf) => zipf.draw(&mut self.rng),
            Spread::Conflict(share) if self.rng.random::<f64>() < *share => 0,
            Spread::Conflict(_) => {
                // Keys 1.. are dealt out to the clients in turn; `Options::check` sees to one for each.
                let own = (self.keys - 2 - self.client) / self.clients + 1;
                1 + self.client + self.rng.random_range(0..own) * self.clients
            }
        }
    }
}

/// How keys and values are named on the wire.
#[derive(Debug)]
pub(super) struct Names {
    key_prefix: String,
    value_size: usize,
}

impl Names {
    /// Keys as `redis-benchmark` names them, values of `value_size` bytes.
    pub(super) fn new(value_size: usize) -> Self {
        Self { key_prefix: "key:".to_owned(), value_size }
    }

    /// Keys that no other run uses, at the same time either, so that a history begins with absent keys.
    pub(super) fn fresh(value_size: usize, run: u128) -> Self {
        Self { key_prefix: format!("h{run:x}:"), value_size }
    }

    /// The key's name, in place of what stands in `buffer`.
    pub(super) fn key<'a>(&self, key: u64, buffer: &'a mut String) -> &'a str {
        buffer.clear();
        buffer.push_str(&self.key_prefix);
        push_padded(buffer, key, 12);
        buffer
    }

    /// Writes the value of a client's operation in place of what stands in `buffer`: a label that no other
    /// operation of the run has, then padding. A size below the label's gives the label.
    pub(super) fn value(&self, client: usize, sequence: u64, buffer: &mut String) {
        buffer.clear();
        let _ = write!(buffer, "{client}.{sequence}");
        let padding = self.value_size.saturating_sub(buffer.len());
        buffer.extend(std::iter::repeat_n('.', padding));
    }
}

/// Appends `number` in decimal, with zeros in front up to `width` digits: `format!` costs four times as much.
fn push_padded(buffer: &mut String, mut number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while number > 0 || digits.len() - at < width {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    buffer.extend(digits[at..].iter().map(|digit| char::from(*digit)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_mix_has_three_shares() {
        assert_eq!("49.5:49.5:1".parse(), Ok(Mix([0.495, 0.495, 0.01])));
        for bad in ["50:50", "50:50:0:0", "a:b:c", "0:0:0", "-1:1:1", "inf:1:1", ""] {
            assert!(bad.parse::<Mix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_come_out_as_asked() {
        let mix = "60:30:10".parse().unwrap();
        let mut workload = Workload::new(3, Application::Registers(mix, 1), Spread::Uniform, 100, (0, 1));
        let mut counts = BTreeMap::new();
        for _ in 0..100_000 {
            *counts.entry(workload.draw().verb.name()).or_insert(0_i32) += 1;
        }
        assert!((counts["get"] - 60_000).abs() < 1_000, "{counts:?}");
        assert!((counts["set"] - 30_000).abs() < 1_000, "{counts:?}");
        assert!((counts["rmw"] - 10_000).abs() < 600, "{counts:?}");
    }

    #[test]
    fn a_read_may_be_of_several_keys() {
        let application = Application::Registers("1:1:0".parse().unwrap(), 3);
        let mut workload = Workload::new(3, application, Spread::Uniform, 3, (0, 1));
        for _ in 0..100 {
            let Operation { verb, mut keys, .. } = workload.draw();
            keys.sort_unstable();
            match verb {
                Verb::Mget => assert_eq!((keys[..] == [0, 1, 2], verb.reads(3), verb.writes()), (true, 3, 0)),
                verb => assert_eq!((verb, keys.len()), (Verb::Set, 1)),
            }
        }
    }

    #[test]
    fn retwis_is_as_published() {
        let mut workload = Workload::new(3, Application::Retwis, Spread::Uniform, 20, (0, 1));
        let mut counts: BTreeMap<&str, i32> = BTreeMap::new();
        let mut read = 0;
        for _ in 0..100_000 {
            let Operation { verb, keys, .. } = workload.draw();
            *counts.entry(verb.name()).or_default() += 1;
            let different: std::collections::BTreeSet<u64> = keys.iter().copied().collect();
            assert_eq!(different.len(), keys.len());
            assert_eq!(keys.len(), verb.reads(keys.len()).max(verb.writes()));
            read += if verb == Verb::Timeline { keys.len() } else { 0 };
        }
        for (name, share) in [("add-user", 5), ("follow", 15), ("post", 30), ("timeline", 50)] {
            assert!((counts[name] - share * 1_000).abs() < 1_000, "{counts:?}");
        }
        let mean = read as f64 / f64::from(counts["timeline"]);
        assert!((5.4..5.6).contains(&mean), "{mean} keys a timeline");
    }

    #[test]
    fn only_the_shared_key_conflicts() {
        let (clients, keys) = (7, 30);
        let mut owners: BTreeMap<u64, u64> = BTreeMap::new();
        let mut shared = 0;
        for client in 0..clients {
            let mix = "1:1:0".parse().unwrap();
            let application = Application::Registers(mix, 1);
            let mut workload = Workload::new(1, application, Spread::Conflict(0.25), keys, (client, clients));
            for _ in 0..10_000 {
                match workload.draw().keys[0] {
                    0 => shared += 1,
                    key => {
                        assert!(key < keys);
                        assert_eq!(*owners.entry(key).or_insert(client), client, "key {key} has two owners");
                    }
                }
            }
        }
        assert!((17_000..18_000).contains(&shared), "{shared}");
        assert_eq!(owners.len() as u64, keys - 1, "every key is somebody's");
    }

    #[test]
    fn a_seed_gives_the_same_operations() {
        let draw = |seed, client| {
            let mix = "1:1:1".parse().unwrap();
            let application = Application::Registers(mix, 1);
            let mut workload = Workload::new(seed, application, Spread::Uniform, 1_000, (client, 2));
            (0..50).map(|_| workload.draw().keys[0]).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn names_are_fixed_in_size_and_values_unique() {
        let names = Names::new(8);
        let mut buffer = String::new();
        assert_eq!(names.key(42, &mut buffer), "key:000000000042");
        names.value(3, 17, &mut buffer);
        assert_eq!(buffer, "3.17....");
        Names::new(0).value(31, 7, &mut buffer);
        assert_eq!(buffer, "31.7");
    }
}
