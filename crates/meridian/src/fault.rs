//! How a command ends: its exit status, and its errors as a person reads them.

use std::fmt;
use std::process::ExitCode;

/// What a command found, as its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything is as it should be: 0.
    Fine,
    /// A model was violated, a claim missed, a run stuck: 1.
    Negative,
    /// Bad usage, configuration or input: 2.
    BadInput,
    /// Some question could not be decided: 3.
    Undecided,
}

impl Verdict {
    /// The verdict on several things together: bad input hides a negative result, which hides an undecided one.
    pub(crate) fn and(self, other: Self) -> Self {
        let rank = |verdict| match verdict {
            Self::Fine => 0,
            Self::Undecided => 1,
            Self::Negative => 2,
            Self::BadInput => 3,
        };
        if rank(other) > rank(self) { other } else { self }
    }
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        Self::from(match verdict {
            Verdict::Fine => 0,
            Verdict::Negative => 1,
            Verdict::BadInput => 2,
            Verdict::Undecided => 3,
        })
    }
}

/// Why a command could not do its work: what, why, and the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    what: String,
    why: String,
    /// `None` if `why` says it too.
    way_out: Option<String>,
}

impl Fault {
    /// `what` went wrong, `why`, and what to do about it.
    pub(crate) fn new(what: impl Into<String>, why: impl fmt::Display, way_out: impl Into<String>) -> Self {
        Self { what: what.into(), why: one_line(&why), way_out: Some(way_out.into()) }
    }

    /// `what` failed with an error whose own text says why, and the way out.
    pub(crate) fn of(what: impl Into<String>, error: &impl std::error::Error) -> Self {
        Self { what: what.into(), why: one_line(error), way_out: None }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "meridian: {}: {}", self.what, self.why)?;
        self.way_out.as_ref().map_or(Ok(()), |way_out| write!(f, ": {way_out}"))
    }
}

/// One line an error is a promise to scripts; a reason from elsewhere may have several.
fn one_line(text: &impl fmt::Display) -> String {
    text.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What a command's work ends with: a verdict, or all that was wrong with what it was given.
pub(crate) type Ended = Result<Verdict, Vec<Fault>>;

impl From<Fault> for Vec<Fault> {
    fn from(fault: Fault) -> Self {
        vec![fault]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graver_verdict_wins() {
        use Verdict::{BadInput, Fine, Negative, Undecided};
        assert_eq!(Fine.and(Undecided), Undecided);
        assert_eq!(Undecided.and(Negative), Negative);
        assert_eq!(Negative.and(Undecided), Negative);
        assert_eq!(BadInput.and(Negative), BadInput);
        assert_eq!(Fine.and(Fine), Fine);
    }

    #[test]
    fn an_error_is_one_line() {
        let fault = Fault::new("cluster.toml", "line 3:\n  unknown key", "remove it");
        assert_eq!(fault.to_string(), "meridian: cluster.toml: line 3: unknown key: remove it");
    }
}
