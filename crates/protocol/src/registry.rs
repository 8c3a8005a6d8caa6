//! Names of models and engines, and the one place where a name becomes an engine.

use crate::causal::{Causal, CausalSettings};
use crate::cc_lo::{CcLo, CcLoSettings};
use crate::clock::Micros;
use crate::compose::Role;
use crate::epaxos::Epaxos;
use crate::gryff::Gryff;
use crate::machine::Engine;
use crate::multipaxos::MultiPaxos;
use crate::multipaxos::log::LogSettings;
use crate::planted::Plant;
use crate::spanner::{Kind, Spanner, SpannerSettings};
use std::fmt;

/// A consistency model that a keyspace can state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// Linearizability: each operation takes effect between its invocation and its response.
    Linearizable,
    /// Regular sequential consistency (RSS/RSC, §3.3).
    Rsc,
    /// Strict serializability.
    StrictSerializable,
    /// Regular sequential serializability (RSS/RSC, §3.2).
    Rss,
    /// Process-ordered serializability.
    PoSerializable,
    /// Causal consistency with read-only transactions.
    Causal,
}

/// A model, its name, and its engines.
type Row = (Model, &'static str, &'static [&'static str]);

impl Model {
    /// Every model with its name and its engines, the default first.
    const ENGINES: [Row; 6] = [
        (Self::Linearizable, "linearizable", &["gryff", "abd", "epaxos", "multipaxos"]),
        (Self::Rsc, "rsc", &["gryff-rsc"]),
        (Self::StrictSerializable, "strict-serializable", &["spanner"]),
        (Self::Rss, "rss", &["spanner-rss"]),
        (Self::PoSerializable, "po-serializable", &["spanner-po"]),
        (Self::Causal, "causal", &["contrarian", "cc-lo", "tcc"]),
    ];

    /// The model's name, as in `--db` and in a configuration.
    pub fn name(self) -> &'static str {
        Self::ENGINES.iter().find(|(model, ..)| *model == self).map_or("", |(_, name, _)| name)
    }

    /// What it gives to commands on several keys.
    pub fn several(self) -> Several {
        match self {
            Self::Linearizable | Self::Rsc => Several::Each,
            Self::Causal => Several::Snapshots,
            Self::StrictSerializable | Self::Rss | Self::PoSerializable => Several::Transactions,
        }
    }
}

/// What a model gives to commands on several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Several {
    /// Each key is acted on for itself.
    Each,
    /// Reads of several keys see one snapshot; writes are each for itself.
    Snapshots,
    /// All of it is one step: [`crate::machine::Request::Together`] with any commands, and transactions that are open
    /// over many requests.
    Transactions,
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An engine, with the model that it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineName {
    /// The model.
    pub model: Model,
    /// The engine's name.
    pub name: &'static str,
}

impl EngineName {
    /// The engine for `model`, or `engine` if one is named.
    ///
    /// # Errors
    /// What is wrong with the names and which ones there are, for a person to read.
    pub fn of_model(model: &str, engine: Option<&str>) -> Result<Self, String> {
        let Some((model, model_name, engines)) = Model::ENGINES.iter().find(|(_, name, _)| *name == model)
        else {
            let known: Vec<_> = Model::ENGINES.iter().map(|(_, name, _)| *name).collect();
            return Err(format!("no model is called '{model}': choose one of {}", known.join(", ")));
        };
        let wanted = engine.unwrap_or(engines[0]);
        let found = engines.iter().find(|name| **name == wanted).map(|name| Self { model: *model, name });
        found.ok_or_else(|| {
            format!("'{wanted}' does not give {model_name}: choose one of {}", engines.join(", "))
        })
    }

    /// The engine called `name`.
    ///
    /// # Errors
    /// What is wrong with the name and which ones there are, for a person to read.
    pub fn of_engine(name: &str) -> Result<Self, String> {
        let all = Self::all();
        all.iter().find(|engine| engine.name == name).copied().ok_or_else(|| {
            let known: Vec<_> = all.iter().map(|engine| engine.name).collect();
            format!("no engine is called '{name}': choose one of {}", known.join(", "))
        })
    }

    /// Whether its replicas have a leader, so that it matters where that is.
    pub fn has_leader(self) -> bool {
        self.name == "multipaxos" || self.name.starts_with("spanner")
    }

    /// Whether its sessions can make what they have seen visible to all that comes after.
    pub fn has_fences(self) -> bool {
        self.model != Model::PoSerializable
    }

    /// What it demands of sessions that use it beside other keyspaces.
    pub fn role(self) -> Role {
        match self.model {
            Model::Linearizable | Model::StrictSerializable => Role::Ordered,
            Model::Rsc => Role::Settles,
            Model::Rss => Role::Enters,
            Model::PoSerializable | Model::Causal => Role::Apart,
        }
    }

    /// How many entries a session's [`Context`](crate::machine::Context) has, in so many regions; one that says nothing may
    /// have none.
    pub fn context_entries(self, regions: u8) -> usize {
        match self.name {
            "spanner-rss" | "spanner-po" => 1,
            "contrarian" => usize::from(regions),
            "tcc" => 3 * usize::from(regions),
            _ => 0,
        }
    }

    /// Whether its writes can take their timestamps from clocks ([`Settings::writes`]).
    pub fn has_one_round_writes(self) -> bool {
        self.name.starts_with("gryff") || self.name == "abd"
    }

    /// Whether its coordinators can gather operations to share an instance ([`Settings::batch`]).
    pub fn gathers(self) -> bool {
        self.name == "epaxos"
    }

    /// Whether the engine carries out operations that depend on the value that they change.
    pub fn serves_rmw(self) -> bool {
        serves_rmw(self.name)
    }

    /// Whether its promise rests on clocks that are as right as their nodes believe.
    pub fn rests_on_clocks(self) -> bool {
        matches!(self.model, Model::StrictSerializable | Model::Rss | Model::PoSerializable)
    }

    /// Whether each operation chooses what is asked of it, and pays for no more.
    pub fn has_levels(self) -> bool {
        self.name == "tcc"
    }

    /// Whether it can be chosen what its timestamps are made of ([`CausalSettings::clock`]).
    pub fn chooses_clock(self) -> bool {
        ["contrarian", "tcc"].contains(&self.name)
    }

    /// Every engine.
    pub fn all() -> Vec<Self> {
        let of_model = |(model, _, engines): &Row| {
            engines.iter().map(|name| Self { model: *model, name }).collect::<Vec<_>>()
        };
        Model::ENGINES.iter().flat_map(of_model).collect()
    }

    /// The engines of which `does` holds, by model, for a person to read.
    pub fn naming(does: impl Fn(Self) -> bool) -> String {
        let of_model = |(model, name, engines): &Row| {
            let fitting: Vec<_> =
                engines.iter().filter(|name| does(Self { model: *model, name })).copied().collect();
            (!fitting.is_empty()).then(|| format!("{name} ({})", fitting.join(", ")))
        };
        Model::ENGINES.iter().filter_map(of_model).collect::<Vec<_>>().join(", ")
    }
}

/// Whether the engine of that name carries out operations that depend on the value that they change: all but those
/// that hold registers only.
pub fn serves_rmw(engine: &str) -> bool {
    !["abd", "contrarian", "cc-lo", "tcc"].contains(&engine)
}

/// How Gryff's writes find a timestamp above all that ended before them. The same on all nodes for as long as a keyspace
/// lives: where it is not [`Writes::TwoRounds`], timestamps are times, and are only told once they have passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// They ask a majority, in a round of its own, as published. No clock is trusted.
    TwoRounds,
    /// They read the clock of their node; on one without a trusted bound they ask.
    OneRound,
    /// They read the clock where that is sooner over: where its uncertainty is below the round trip to a majority.
    Auto,
}

impl Writes {
    /// Every way with its name in configurations and flags.
    pub const NAMES: [(Self, &'static str); 3] =
        [(Self::TwoRounds, "two-round"), (Self::OneRound, "one-round"), (Self::Auto, "auto")];

    /// The way of that name.
    ///
    /// # Errors
    /// Which names there are, for a person to read.
    pub fn named(name: &str) -> Result<Self, String> {
        let known = Self::NAMES.iter().find(|(_, known)| *known == name);
        known.map(|(writes, _)| *writes).ok_or_else(|| {
            let names: Vec<_> = Self::NAMES.iter().map(|(_, name)| *name).collect();
            format!("writes are not done '{name}': choose one of {}", names.join(", "))
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(writes, _)| *writes == self).map_or("", |(_, name)| name)
    }
}

/// What an operator can set about an engine, with defaults for a wide area.
#[expect(clippy::struct_excessive_bools, reason = "switches, each turned by itself")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// After how long without the answers it needs a machine sends again, to all.
    pub retry: Micros,
    /// After how long a replica takes up an instance that its coordinator has left open.
    pub recovery: Micros,
    /// After how long a request ends without success.
    pub operation_timeout: Micros,
    /// How often replicas compare what they hold.
    pub sync: Micros,
    /// How long the results of rmws are remembered, so that a retry takes effect once. The same on all nodes of a
    /// cluster, and far above `operation_timeout` and what clocks differ by.
    pub remember: Micros,
    /// Gryff-RSC with the rule as published, which does not give RSC: for reproducing the paper's figures only.
    pub rsc_as_published: bool,
    /// EPaxos executes as its authors' program does, all keys in one line: for reproducing figures only.
    pub epaxos_as_published: bool,
    /// Reads are coordinated by the replica in the client's region, which lends its own copy (Gryff §5).
    pub read_proxy: bool,
    /// First phases go to the nearest quorum only, and to all when one of it does not answer.
    pub thrifty: bool,
    /// How Gryff's writes find a timestamp above all that ended before them.
    pub writes: Writes,
    /// By how much more than its own clock allows a timestamp may lie ahead before a replica refuses it, where
    /// timestamps are of clocks: above twice the largest bound of a node that is trusted.
    pub clock_ahead: Micros,
    /// What engines with a replicated log and a leader go by.
    pub log: LogSettings,
    /// What the causal engines go by.
    pub causal: CausalSettings,
    /// What CC-LO goes by, beside.
    pub cc_lo: CcLoSettings,
    /// What the engines with transactions go by.
    pub spanner: SpannerSettings,
    /// How long a coordinator of EPaxos gathers operations of one key to share an instance; 0: each has its own.
    pub batch: Micros,
    /// A bug to run with.
    pub plant: Plant,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            retry: 500_000,
            recovery: 600_000,
            operation_timeout: 10_000_000,
            sync: 1_000_000,
            remember: 120_000_000,
            rsc_as_published: false,
            epaxos_as_published: false,
            read_proxy: true,
            thrifty: true,
            writes: Writes::TwoRounds,
            clock_ahead: 1_000_000,
            log: LogSettings::default(),
            causal: CausalSettings::default(),
            cc_lo: CcLoSettings::default(),
            spanner: SpannerSettings::default(),
            batch: 0,
            plant: Plant::default(),
        }
    }
}

/// Code that works with any engine, given one.
pub trait Visitor {
    /// What it makes of the engine.
    type Output;
    /// Does its work with `engine`.
    fn visit<E: Engine>(self, engine: E) -> Self::Output;
}

/// Calls `visitor` with the engine of that name. The only place that knows all engines.
pub fn with_engine<V: Visitor>(name: EngineName, settings: &Settings, visitor: V) -> V::Output {
    let settings = settings.clone();
    match name.name {
        "gryff-rsc" => visitor.visit(Gryff::rsc(settings)),
        "multipaxos" => visitor.visit(MultiPaxos::new(settings)),
        "abd" => visitor.visit(Gryff::abd(settings)),
        "epaxos" => visitor.visit(Epaxos::new(settings)),
        "contrarian" => visitor.visit(Causal::contrarian(settings)),
        "cc-lo" => visitor.visit(CcLo::new(settings)),
        "tcc" => visitor.visit(Causal::tcc(settings)),
        "spanner" => visitor.visit(Spanner::new(Kind::Strict, settings)),
        "spanner-rss" => visitor.visit(Spanner::new(Kind::Rss, settings)),
        "spanner-po" => visitor.visit(Spanner::new(Kind::Po, settings)),
        // `EngineName` is only made of names in the table.
        _ => visitor.visit(Gryff::linearizable(settings)),
    }
}
