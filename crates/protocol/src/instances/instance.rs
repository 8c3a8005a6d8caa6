//! One consensus instance: a command's way to an agreed place in its key's order, as one replica knows it
//! (EPaxos §4.3; Gryff §4.2).

use super::message::Step;
use crate::machine::OpId;
use crate::object::Action;
use crate::topology::Region;
use minicbor::encode::{Error as EncodeError, Write};
use minicbor::{Decode, Decoder, Encode, Encoder, decode::Error as DecodeError};
use std::fmt::{self, Debug};
use std::ops::Deref;
use std::sync::Arc;

/// A ballot of one instance. Counter 0 is the coordinator's own, which it needs not ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Ballot {
    /// 0 for the coordinator's initial ballot, then rising.
    #[n(0)]
    pub counter: u32,
    /// Who leads it; tells ballots of equal counter apart. 0 in the initial ballot.
    #[n(1)]
    pub leader: u8,
}

/// An operation on its way through consensus.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Operation {
    /// Its name; the same in every retry, so that it takes effect once.
    #[n(0)]
    pub op: OpId,
    /// Which of the client's concurrent operations it is. A lane has one at a time, so that its last result is
    /// all that must be remembered.
    #[n(1)]
    pub lane: u32,
    /// What to do.
    #[n(2)]
    pub action: Action,
    /// The client's time, ms since the Unix epoch: judges expiry, and how long the result is remembered.
    #[n(3)]
    pub at_ms: u64,
}

/// What an instance does. The default does nothing (a Nop): the outcome of an instance whose operations a recovery
/// could not find or had to give up.
pub trait Command: Clone + Debug + Default + PartialEq {
    /// Its operations, in order; none in a Nop.
    fn operations(&self) -> &[Operation];

    /// Whether it does nothing.
    fn is_nop(&self) -> bool {
        self.operations().is_empty()
    }
}

/// At most one operation.
impl Command for Option<Box<Operation>> {
    fn operations(&self) -> &[Operation] {
        self.as_deref().map(std::slice::from_ref).unwrap_or_default()
    }
}

/// Any number of operations, held once however many instances, messages and records speak of them.
#[derive(Clone, Default)]
pub struct Operations(Option<Arc<Vec<Operation>>>);

impl Command for Operations {
    fn operations(&self) -> &[Operation] {
        self
    }
}

impl Deref for Operations {
    type Target = [Operation];

    fn deref(&self) -> &[Operation] {
        self.0.as_ref().map(|operations| operations.as_slice()).unwrap_or_default()
    }
}

impl From<Vec<Operation>> for Operations {
    fn from(operations: Vec<Operation>) -> Self {
        Self((!operations.is_empty()).then(|| Arc::new(operations)))
    }
}

impl PartialEq for Operations {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<C> Encode<C> for Operations {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, ctx: &mut C) -> Result<(), EncodeError<W::Error>> {
        (**self).encode(e, ctx)
    }
}

impl<'b, C> Decode<'b, C> for Operations {
    fn decode(d: &mut Decoder<'b>, ctx: &mut C) -> Result<Self, DecodeError> {
        Vec::decode(d, ctx).map(Self::from)
    }
}

/// What consensus agrees on besides the command: what it must come after.
pub trait Attributes: Clone + Debug + Default + PartialEq {
    /// Adds what another replica knows.
    fn merge(&mut self, other: &Self);

    /// Whether both say the same, so that a replica which has merged them had nothing to add.
    fn same(&self, other: &Self) -> bool;

    /// How many dependencies they name.
    fn dependencies(&self) -> usize;
}

/// What an instance does and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Proposal<C, A> {
    /// The command.
    #[n(0)]
    pub command: C,
    /// Its place.
    #[n(1)]
    pub attributes: A,
}

impl<C, A: Attributes> Proposal<C, A> {
    /// What it carries one by one: the instance and its dependencies.
    pub fn items(&self) -> usize {
        1 + self.attributes.dependencies()
    }
}

/// How far an instance has come at a replica. Executed instances are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub enum Phase {
    /// Nothing is known of it but its id (another instance depends on it, or a recovery asked).
    #[n(0)]
    Unknown,
    /// Pre-accepted at the initial ballot.
    #[n(1)]
    PreAccepted,
    /// Accepted at the ballot `accepted`.
    #[n(2)]
    Accepted,
    /// Final.
    #[n(3)]
    Committed,
}

/// One instance as one replica knows it.
///
/// Two ballots, not one: `promised` refuses what is older, `accepted` says at which ballot the outcome was
/// accepted. With a single ballot, as EPaxos is published, answering a recovery makes a stale outcome look
/// fresh, and two outcomes can be committed (Sutra 2019).
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Instance<C, A> {
    /// The highest ballot promised. Never goes back.
    #[n(0)]
    pub promised: Ballot,
    /// The ballot at which `proposal` was accepted.
    #[n(1)]
    pub accepted: Ballot,
    /// How far it has come. Never goes back.
    #[n(2)]
    pub phase: Phase,
    /// The outcome as known here; meaningful from [`Phase::PreAccepted`] on.
    #[n(3)]
    pub proposal: Proposal<C, A>,
    /// The attributes that the coordinator proposed at first, as far as they are known. Apart from `proposal`, because
    /// a record may learn more and must not count as unchanged then.
    #[n(4)]
    pub initial: Option<A>,
    /// The partner that the coordinator named (three replicas only).
    #[n(5)]
    pub partner: Option<Region>,
}

impl<C: Command, A: Attributes> Instance<C, A> {
    /// An instance of which nothing is known.
    pub fn unknown() -> Self {
        Self {
            promised: Ballot::default(),
            accepted: Ballot::default(),
            phase: Phase::Unknown,
            proposal: Proposal::default(),
            initial: None,
            partner: None,
        }
    }

    /// Whether new instances must be ordered with it.
    pub fn is_known(&self) -> bool {
        self.phase >= Phase::PreAccepted || self.initial.is_some()
    }

    /// Pre-accepts what a coordinator has proposed with `initial`.
    pub(super) fn pre_accept(&mut self, initial: A, proposal: Proposal<C, A>, partner: Option<Region>) {
        self.phase = Phase::PreAccepted;
        self.proposal = proposal;
        self.initial = Some(initial);
        self.partner = partner;
    }

    /// Accepts an outcome at a ballot that is not below the one promised.
    pub(super) fn accept(&mut self, ballot: Ballot, proposal: Proposal<C, A>) {
        self.promised = ballot;
        self.accepted = ballot;
        self.phase = Phase::Accepted;
        self.proposal = proposal;
    }

    /// What to answer, in place of doing it, to whoever wants something done at a ballot: that the outcome is final, or
    /// that a higher ballot is promised.
    pub(crate) fn objection(&self, ballot: Ballot) -> Option<Step<C, A>> {
        if self.phase == Phase::Committed {
            return Some(Step::Commit { proposal: Box::new(self.proposal.clone()) });
        }
        (ballot < self.promised).then_some(Step::Refused { promised: self.promised })
    }

    /// What to tell a recoverer.
    pub(crate) fn report(&self) -> Report<C, A> {
        let Self { accepted, phase, proposal, initial, partner, .. } = self;
        let unchanged = initial.as_ref().is_some_and(|initial| proposal.attributes.same(initial));
        Report {
            phase: *phase,
            accepted: *accepted,
            proposal: (*phase >= Phase::PreAccepted).then(|| proposal.clone()),
            unchanged: *phase == Phase::PreAccepted && unchanged,
            partner: *partner,
        }
    }
}

/// What a replica knows of an instance, told to a recoverer.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Report<C, A> {
    /// How far the instance has come here.
    #[n(0)]
    pub phase: Phase,
    /// The ballot at which `proposal` was accepted.
    #[n(1)]
    pub accepted: Ballot,
    /// The outcome as known here, from [`Phase::PreAccepted`] on.
    #[n(2)]
    pub proposal: Option<Proposal<C, A>>,
    /// Whether it is pre-accepted just as the coordinator proposed it.
    #[n(3)]
    pub unchanged: bool,
    /// The partner that the coordinator named.
    #[n(4)]
    pub partner: Option<Region>,
}
