//! The models by name, what kind of order each asks for, and which one implies which.

use std::fmt;

/// A consistency model that can be judged.
///
/// Names come in pairs where the literature has one word for operations on single keys and another for
/// transactions: both want the same order, but the former does not apply to operations on several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Model {
    /// One order of all operations that respects real time (Herlihy and Wing).
    Linearizable,
    /// The same for transactions.
    StrictSerializable,
    /// Regular sequential consistency (RSS paper, §3.4).
    Rsc,
    /// Regular sequential serializability (RSS paper, §3.4).
    Rss,
    /// As [`Model::Rsc`], with real time only between operations at one service: what fences between services
    /// give (RSS paper, Theorem C.14).
    RscPerService,
    /// As [`Model::Rss`], with real time only between transactions at one service.
    RssPerService,
    /// One order of all operations that respects each session's own (Lamport).
    Sequential,
    /// The same for transactions: process-ordered serializability.
    PoSerializable,
    /// One order of all transactions.
    Serializable,
    /// Causal consistency with convergence: reads are judged one by one, those of a read-only transaction too.
    Causal,
    /// As [`Model::Causal`], and all reads of a transaction come from one snapshot.
    CausalRot,
    /// Read your writes (TCC paper, definition 8): every read asks for it.
    Ryw,
    /// Monotonic reads (TCC paper, definition 9): every read asks for it.
    Mr,
    /// Monotonic writes (TCC paper, definition 10), as monotonic reads see them.
    Mw,
    /// Writes follow reads (TCC paper, definition 11), as monotonic reads see them.
    Wfr,
    /// Each operation at the level that it asked for, by the letter of the TCC paper (definition 13).
    TccSpec,
    /// As [`Model::TccSpec`], and with a write all that it must follow is visible.
    TccClosed,
    /// Once all is quiet every session reads the same.
    Eventual,
    /// `CockroachDB`'s model as the RSS paper's appendix A.1 has it.
    Crdb,
    /// Strong snapshot isolation (RSS paper, appendix A.1).
    StrongSi,
    /// Ordered sequential consistency, OSC(U) (RSS paper, appendix A.2).
    OscU,
    /// Real-time causal consistency (RSS paper, appendix A.2).
    RealTimeCausal,
    /// Viotti and Vukolić's multi-writer regularity (RSS paper, appendix A.2).
    VvRegularity,
    /// Shao et al.'s weakest multi-writer regularity (RSS paper, appendix A.2).
    MwrWeak,
    /// MWR-Weak, and any two reads agree on the order of writes relevant to both.
    MwrWo,
    /// MWR-Weak, and serializations respect reads-from.
    MwrRf,
    /// MWR-Weak, and the reads of one session agree on the order of writes relevant to both.
    MwrNi,
}

impl Model {
    /// Every model with its name, the stronger before the weaker; neighbours of appendix A last.
    pub const ALL: [(&'static str, Self); 27] = [
        ("linearizable", Self::Linearizable),
        ("strict-serializable", Self::StrictSerializable),
        ("rsc", Self::Rsc),
        ("rss", Self::Rss),
        ("rsc-per-service", Self::RscPerService),
        ("rss-per-service", Self::RssPerService),
        ("sequential", Self::Sequential),
        ("po-serializable", Self::PoSerializable),
        ("serializable", Self::Serializable),
        ("causal-rot", Self::CausalRot),
        ("causal", Self::Causal),
        ("tcc-closed", Self::TccClosed),
        ("tcc-spec", Self::TccSpec),
        ("wfr", Self::Wfr),
        ("mw", Self::Mw),
        ("mr", Self::Mr),
        ("ryw", Self::Ryw),
        ("eventual", Self::Eventual),
        ("crdb", Self::Crdb),
        ("strong-si", Self::StrongSi),
        ("osc-u", Self::OscU),
        ("real-time-causal", Self::RealTimeCausal),
        ("vv-regularity", Self::VvRegularity),
        ("mwr-wo", Self::MwrWo),
        ("mwr-ni", Self::MwrNi),
        ("mwr-rf", Self::MwrRf),
        ("mwr-weak", Self::MwrWeak),
    ];

    /// Whether the model speaks of operations on single keys only, and if so which one speaks of transactions.
    pub fn for_transactions(self) -> Option<Self> {
        match self {
            Self::Linearizable => Some(Self::StrictSerializable),
            Self::Rsc => Some(Self::Rss),
            Self::RscPerService => Some(Self::RssPerService),
            Self::Sequential => Some(Self::PoSerializable),
            _ => None,
        }
    }

    /// The model of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, model)| *model)
    }

    /// The models that this one implies directly: whatever obeys this obeys them, as far as they apply and nobody
    /// reads a value before its write is invoked.
    ///
    /// Sequential consistency and OSC(U) know no messages, so that they do not imply the causal models. The RSS
    /// paper puts strong snapshot isolation and VV regularity below RSS; that is right for single operations
    /// (RSC) only: `A: w y=1 [0,20]; B: r x=0, r y=1 [0,1]; C: w x=1 [1,2]; D: r y=0 [3,4]` is RSS and neither of
    /// the two. On registers VV regularity, strong snapshot isolation and MWR-WO are one and the same.
    pub fn implies(self) -> &'static [Self] {
        match self {
            Self::Linearizable => &[Self::StrictSerializable, Self::Rsc, Self::MwrRf],
            Self::StrictSerializable => &[Self::Rss, Self::Crdb, Self::OscU, Self::VvRegularity],
            Self::Rsc => &[Self::Rss, Self::RscPerService],
            Self::Rss => &[Self::RssPerService, Self::RealTimeCausal],
            Self::RscPerService => &[Self::RssPerService, Self::Sequential, Self::VvRegularity],
            Self::RssPerService => &[Self::PoSerializable, Self::CausalRot, Self::Eventual],
            Self::Crdb => &[Self::PoSerializable, Self::Eventual],
            Self::OscU | Self::Sequential => &[Self::PoSerializable],
            Self::PoSerializable => &[Self::Serializable, Self::TccClosed, Self::Wfr, Self::Mw, Self::Ryw],
            Self::RealTimeCausal => &[Self::CausalRot],
            Self::CausalRot => &[Self::Causal],
            Self::Causal => &[Self::TccClosed, Self::Wfr, Self::Mw, Self::Ryw],
            Self::TccClosed => &[Self::TccSpec],
            Self::VvRegularity => &[Self::Serializable, Self::StrongSi],
            Self::StrongSi => &[Self::MwrWo, Self::Ryw, Self::Eventual],
            Self::MwrWo => &[Self::MwrNi],
            Self::MwrNi | Self::MwrRf => &[Self::MwrWeak],
            Self::Wfr | Self::Mw => &[Self::Mr],
            Self::TccSpec | Self::Mr | Self::Ryw | Self::Serializable | Self::Eventual | Self::MwrWeak => &[],
        }
    }

    /// Whether all that obeys this model obeys `other`.
    pub fn at_least(self, other: Self) -> bool {
        self == other || self.implies().iter().any(|weaker| weaker.at_least(other))
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, model)| model == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}
