//! `check --explain`: a page that shows why models are violated.

use crate::fault::Fault;
use meridian_check::{Model, explain, page};
use meridian_protocol::history::Event;
use std::path::Path;

/// Writes the page for the models that the history was found to violate.
pub(super) fn write(out: &Path, violated: &[Model], events: &[Event]) -> Result<(), Fault> {
    let explanations: Vec<_> = violated.iter().filter_map(|model| explain(*model, events)).collect();
    std::fs::write(out, page(events, &explanations))
        .map_err(|error| Fault::new(out.display().to_string(), error, "name a file that can be written"))
}
