//! What happened, as one number: equal runs have equal traces.

use meridian_protocol::clock::Micros;
use meridian_protocol::topology::Address;
use std::fmt;
use std::io::Write;

/// A digest of all that happened, and the story itself where somebody wants to read it.
pub(crate) struct Trace {
    digest: u64,
    story: Option<Box<dyn Write>>,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("digest", &self.digest).finish_non_exhaustive()
    }
}

impl Trace {
    pub(crate) fn new(story: Option<Box<dyn Write>>) -> Self {
        Self { digest: 0, story }
    }

    /// The digest so far.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Adds a word to the digest.
    pub(crate) fn word(&mut self, word: u64) {
        self.digest = mix(self.digest, word);
    }

    /// Adds an address to the digest.
    pub(crate) fn address(&mut self, address: Address) {
        self.word(match address {
            Address::Replica(id) => u64::from(id.partition) << 8 | u64::from(id.region.0),
            Address::Client(_, id) => id.0,
        });
    }

    /// Adds a line to the story. Where nobody reads it, it is not even written.
    pub(crate) fn tell(&mut self, time: Micros, line: fmt::Arguments<'_>) {
        if let Some(story) = &mut self.story {
            // A reader who has gone away must not stop the run.
            let _ = writeln!(story, "{:>12.6} {line}", time as f64 / 1e6);
        }
    }
}

/// A digest of bytes, the same on every machine and in every version.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    let mut digest = bytes.len() as u64;
    for word in &mut words {
        digest = mix(digest, u64::from_le_bytes(word.try_into().expect("chunks of eight")));
    }
    words.remainder().iter().fold(digest, |digest, byte| mix(digest, u64::from(*byte)))
}

fn mix(digest: u64, word: u64) -> u64 {
    let mixed = (digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}
