//! Neighbours of RSS and RSC that order no operations of all sessions into one sequence (RSS paper, appendix A).
//!
//! Messages and fences are nothing to them: none of the definitions knows causality.

mod regularity;
mod strong_si;

use crate::operations::Operations;
use crate::{Judgement, Model};

/// Judges by `model`: strong snapshot isolation or one of the MWR regularities.
pub(crate) fn judge(model: Model, operations: &Operations<'_>) -> Judgement {
    match model {
        Model::StrongSi => strong_si::judge(operations),
        _ => regularity::judge(model, operations),
    }
}
