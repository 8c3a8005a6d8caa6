//! What can go wrong, each with its way out.

use crate::service::Failure;
use thiserror::Error;

/// Why something was not done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A name that is in use.
    #[error("service {name} is registered: unregister it first, or choose another name")]
    Known {
        /// The name.
        name: String,
    },
    /// A name that no context could carry.
    #[error(
        "{name:?} cannot name a service: use 1 to {} letters, digits, '-' and '_'",
        crate::context::NAME_MAX
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// A handle that is none of this session's, or of a service that was unregistered.
    #[error("this session has no such service: register it first")]
    Unknown,
    /// The session owes the service's fence.
    #[error("service {name} is owed a fence: run Session::fence first")]
    Owed {
        /// The service.
        name: String,
    },
    /// A step of a service has failed. Nothing that was to follow was begun, and fences that were owed still are.
    #[error(
        "service {name}: its {step} failed and nothing was begun: {source}: try again, or begin another session if the connection is lost"
    )]
    Step {
        /// The service.
        name: String,
        /// `fence`, `entry`, `export` or `import`.
        step: &'static str,
        /// The service's own words.
        source: Failure,
    },
    /// A context that cannot be read.
    #[error("this is no context: {0}: go on without it, and without the order that it would have kept")]
    BadContext(&'static str),
    /// A context of a service that this session has not got.
    #[error(
        "the context names service {name}, which this session has not registered: register it before taking the context over"
    )]
    Foreign {
        /// The service.
        name: String,
    },
}
