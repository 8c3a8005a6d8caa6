//! What replicas say to each other about one instance, in the order in which it travels.

use super::instance::{Attributes, Ballot, Proposal, Report};
use crate::topology::Region;
use minicbor::{Decode, Encode};

/// A step of one instance. Its "coordinator" is the replica in whose row it stands.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Step<C, A> {
    /// Coordinator to a fast quorum: this command with what I know.
    #[n(0)]
    PreAccept {
        /// The command with the attributes that the coordinator knows.
        #[n(0)]
        proposal: Box<Proposal<C, A>>,
        /// With three replicas: the one whose merged attributes the coordinator may commit in one round.
        #[n(1)]
        partner: Option<Region>,
    },
    /// Replica to coordinator: pre-accepted, with what I know added.
    #[n(1)]
    PreAcceptReply {
        /// The merged attributes.
        #[n(0)]
        attributes: Box<A>,
    },
    /// Coordinator or recoverer to replicas: accept this outcome at this ballot.
    #[n(2)]
    Accept {
        /// The ballot.
        #[n(0)]
        ballot: Ballot,
        /// The outcome.
        #[n(1)]
        proposal: Box<Proposal<C, A>>,
    },
    /// Replica to coordinator or recoverer: accepted at that ballot.
    #[n(3)]
    AcceptReply {
        /// The ballot.
        #[n(0)]
        ballot: Ballot,
    },
    /// To those that may not hold it: this outcome is final.
    #[n(4)]
    Commit {
        /// The outcome.
        #[n(0)]
        proposal: Box<Proposal<C, A>>,
    },
    /// To those that are known to hold the outcome: it is final.
    #[n(8)]
    Final,
    /// Replica to whoever asked with a ballot below the one promised.
    #[n(5)]
    Refused {
        /// The ballot promised.
        #[n(0)]
        promised: Ballot,
    },
    /// Recoverer to all: promise this ballot and tell what you know.
    #[n(6)]
    Recover {
        /// The ballot.
        #[n(0)]
        ballot: Ballot,
    },
    /// Replica to recoverer: promised; this is what I know.
    #[n(7)]
    RecoverReply {
        /// The ballot promised.
        #[n(0)]
        ballot: Ballot,
        /// What it knows.
        #[n(1)]
        report: Box<Report<C, A>>,
    },
}

impl<C, A: Attributes> Step<C, A> {
    /// What it carries one by one: the instance and its dependencies.
    pub fn items(&self) -> usize {
        match self {
            Self::PreAccept { proposal, .. } | Self::Accept { proposal, .. } | Self::Commit { proposal } => {
                proposal.items()
            }
            Self::PreAcceptReply { attributes } => 1 + attributes.dependencies(),
            Self::RecoverReply { report, .. } => report.proposal.as_ref().map_or(1, Proposal::items),
            Self::AcceptReply { .. } | Self::Final | Self::Refused { .. } | Self::Recover { .. } => 1,
        }
    }
}
