//! Histories: what sessions did and saw, as checkers judge it. One JSON object a line in a file.

use serde::{Deserialize, Serialize};

/// One operation or transaction of one session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Unique in the history.
    pub id: u64,
    /// The session whose process order the operation belongs to.
    pub session: String,
    /// The service (keyspace) that it used.
    #[serde(default)]
    pub service: String,
    /// What it was.
    #[serde(default)]
    pub kind: Kind,
    /// Reads and writes in order; an rmw is a read, then a write of the same key.
    #[serde(default)]
    pub ops: Vec<Access>,
    /// When it was invoked, as an integer from any one origin.
    pub invoke: i64,
    /// When it returned; `None` if it did not or that is not known.
    #[serde(rename = "return")]
    pub returned: Option<i64>,
    /// How it ended.
    #[serde(default)]
    pub outcome: Ended,
    /// The level asked for, in keyspaces where each operation chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Operations whose result reached this session by a message before this one was invoked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u64>,
    /// The engine's proof of order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<Witness>,
}

/// What kind of operation it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// One operation on one key.
    #[default]
    Op,
    /// A read-write transaction.
    Rw,
    /// A read-only transaction.
    Ro,
    /// A causal read-only transaction.
    Rot,
    /// A fence.
    Fence,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// It happened.
    #[default]
    Ok,
    /// It did not happen, and never will.
    Failed,
    /// It may have happened, or may yet.
    Unknown,
}

/// One access to one key: `["r", key, value]` or `["w", key, value]`, `null` where the key is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(Mode, String, Option<String>)", into = "(Mode, String, Option<String>)")]
pub struct Access {
    /// Read or write.
    pub mode: Mode,
    /// The key.
    pub key: String,
    /// The value seen or left; `None` is an absent key.
    pub value: Option<String>,
}

impl From<(Mode, String, Option<String>)> for Access {
    fn from((mode, key, value): (Mode, String, Option<String>)) -> Self {
        Self { mode, key, value }
    }
}

impl From<Access> for (Mode, String, Option<String>) {
    fn from(access: Access) -> Self {
        (access.mode, access.key, access.value)
    }
}

/// The direction of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// The value was seen.
    #[serde(rename = "r")]
    Read,
    /// The value was left.
    #[serde(rename = "w")]
    Write,
}

/// An engine's proof of where an operation stands in the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Witness {
    /// `[ts, id, rmwc]`: the carstamp that a read observed, or that a write or rmw created. An rmw observed
    /// the carstamp with one rmwc less.
    Cs((u64, u64, u32)),
    /// The commit timestamp of a read-write transaction: it saw the newest versions below.
    Tc(Stamped),
    /// The snapshot timestamp of a read-only transaction: it saw the newest versions that are not younger.
    Snap(Stamped),
    /// A causal put.
    Put {
        /// The version that it created.
        at: Version,
        /// Its dependencies and itself, one entry a region; empty in engines without vectors.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        vc: Vec<u64>,
    },
    /// A causal read.
    Got {
        /// The version that each read of the operation saw, in their order; `null` where the key was absent and
        /// never written.
        at: Vec<Option<Version>>,
        /// The snapshot that it read, one entry a region; empty in engines without vectors.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sv: Vec<u64>,
    },
}

/// A transaction's timestamp and what it saw. Without the latter a number alone is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StampedForm", into = "StampedForm")]
pub struct Stamped {
    /// The timestamp.
    pub at: u64,
    /// Of each key that was read the commit timestamp of the version seen; `None` where nothing was ever written. It
    /// tells where transactions stand whose own answer never came. Empty if that is not told.
    pub saw: Vec<(String, Option<u64>)>,
}

impl From<u64> for Stamped {
    fn from(at: u64) -> Self {
        Self { at, saw: Vec::new() }
    }
}

/// The two ways in which [`Stamped`] is written.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StampedForm {
    At(u64),
    Saw { at: u64, saw: Vec<(String, Option<u64>)> },
}

impl From<StampedForm> for Stamped {
    fn from(form: StampedForm) -> Self {
        match form {
            StampedForm::At(at) => at.into(),
            StampedForm::Saw { at, saw } => Self { at, saw },
        }
    }
}

impl From<Stamped> for StampedForm {
    fn from(Stamped { at, saw }: Stamped) -> Self {
        if saw.is_empty() { Self::At(at) } else { Self::Saw { at, saw } }
    }
}

/// A version of a causal keyspace: timestamp, region, partition (or node). The greatest wins.
pub type Version = (u64, u32, u32);
