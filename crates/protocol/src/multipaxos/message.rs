//! What clients and replicas say to each other, and what the log holds.

use super::log::{self, Ballot};
use super::store::Fact;
use crate::machine::{self, OpId};
use crate::object::{Action, Answer, Class, TypeName};
use crate::registers::carstamp::Carstamp;
use bytes::Bytes;
use minicbor::{Decode, Encode};

/// An operation as the log holds it.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Command {
    /// The operation's name, the same in every retry.
    #[n(0)]
    pub op: OpId,
    /// What is to be done.
    #[n(1)]
    pub work: Work,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Work {
    /// Acts on one key.
    #[n(0)]
    Act {
        /// The key.
        #[n(0)]
        #[cbor(with = "crate::wire::blob")]
        key: Bytes,
        /// Which of the client's concurrent updates this is; of no meaning in a read.
        #[n(1)]
        lane: u32,
        /// The action.
        #[n(2)]
        action: Action,
        /// The client's time, ms: expiry is judged by it.
        #[n(3)]
        at_ms: u64,
    },
    /// Lists keys in the order of their hashes.
    #[n(1)]
    List {
        /// Keys whose hash is at least this.
        #[n(0)]
        from: u64,
        /// About how many.
        #[n(1)]
        count: u32,
        /// Time for judging expiry, ms.
        #[n(2)]
        at_ms: u64,
    },
}

impl Work {
    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Act { action, .. } => action.class() == Class::Read,
            Self::List { .. } => true,
        }
    }
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Outcome {
    /// Done.
    #[n(0)]
    Answer {
        /// The answer.
        #[n(0)]
        answer: Answer,
        /// The version that it created, or that a read has seen.
        #[n(1)]
        carstamp: Carstamp,
    },
    /// Done: keys with their types, and the hash from which to go on.
    #[n(1)]
    Page {
        /// The keys.
        #[n(0)]
        keys: Vec<Listed>,
        /// From where to go on.
        #[n(1)]
        next: Option<u64>,
    },
    /// It came too late to tell whether it had been done before.
    #[n(2)]
    Forgotten,
    /// Not done: its time is too far ahead of the replica's. Were it done, results of others would be forgotten
    /// too soon.
    #[n(3)]
    Refused,
}

/// A key in a listing.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Listed {
    /// The key.
    #[n(0)]
    #[cbor(with = "crate::wire::blob")]
    pub key: Bytes,
    /// The type of its value.
    #[n(1)]
    pub kind: TypeName,
}

/// Every message of the protocol.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Message {
    /// Client to a replica: do this. Sent again, to this replica or another, under the same name.
    #[n(0)]
    Request(#[n(0)] Command),
    /// Replica to the one that it takes for the leader: do this for its client.
    #[n(1)]
    Forward {
        /// The operation.
        #[n(0)]
        command: Command,
        /// By which term the sender knows the leader. It is forwarded again only by a later one, so not for ever.
        #[n(1)]
        ballot: Ballot,
    },
    /// To the client.
    #[n(2)]
    Reply {
        /// The operation.
        #[n(0)]
        op: OpId,
        /// What came of it.
        #[n(1)]
        outcome: Outcome,
        /// Wide-area round trips that it took at the leader.
        #[n(2)]
        rounds: u32,
    },
    /// Between the replicas of the log.
    #[n(3)]
    Log(#[n(0)] log::Message<Command, Fact>),
}

impl machine::Message for Message {
    fn items(&self) -> usize {
        if let Self::Log(message) = self { message.items() } else { 0 }
    }
}
