//! Reading TOML so that all faults are told at once, each with its line.

use super::Fault;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// The faults found so far in a text.
#[derive(Debug)]
pub(super) struct Faults<'t> {
    text: &'t str,
    list: Vec<Fault>,
}

impl<'t> Faults<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, list: Vec::new() }
    }

    /// Notes what is wrong at a byte of the text.
    pub(super) fn add(&mut self, at: usize, reason: impl Into<String>) {
        let line = self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        self.list.push(Fault { line, reason: reason.into() });
    }

    /// All of them in the order of lines.
    pub(super) fn into_list(mut self) -> Vec<Fault> {
        self.list.sort_by_key(|fault| fault.line);
        self.list
    }
}

/// A table whose keys are taken one by one; those left over are not known.
#[derive(Debug)]
pub(super) struct Section<'t, 'i> {
    /// As people call it: `[cluster]`.
    pub(super) name: String,
    /// Where it begins.
    pub(super) at: usize,
    entries: BTreeMap<&'t str, (Range<usize>, &'t DeValue<'i>)>,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) at: usize,
}

impl<'t, 'i> Section<'t, 'i> {
    pub(super) fn new(name: &str, at: usize, table: &'t DeTable<'i>) -> Self {
        let entries = table
            .iter()
            .map(|(key, value)| (key.get_ref().as_ref(), (value.span(), value.get_ref())))
            .collect();
        Self { name: name.to_owned(), at, entries }
    }

    /// A section of this one: `[name]`. A missing one is empty.
    pub(super) fn table(&mut self, faults: &mut Faults<'_>, name: &str) -> Section<'t, 'i> {
        let title = format!("[{name}]");
        match self.entries.remove(name) {
            Some((span, DeValue::Table(table))) => Section::new(&title, span.start, table),
            Some((span, other)) => {
                faults.add(span.start, format!("{name} is {}: write a section {title}", other.type_str()));
                Section { name: title, at: span.start, entries: BTreeMap::new() }
            }
            None => Section { name: title, at: 0, entries: BTreeMap::new() },
        }
    }

    /// A section of this one, if it is there.
    pub(super) fn optional_table(&mut self, faults: &mut Faults<'_>, name: &str) -> Option<Section<'t, 'i>> {
        self.entries.contains_key(name).then(|| self.table(faults, name))
    }

    /// Repeated sections of this one: `[[name]]`.
    pub(super) fn tables(&mut self, faults: &mut Faults<'_>, name: &str) -> Vec<Section<'t, 'i>> {
        let title = format!("[[{name}]]");
        let Some((span, value)) = self.entries.remove(name) else { return Vec::new() };
        let mut sections = Vec::new();
        let items = value.as_array().map(|array| array.iter().collect()).unwrap_or_default();
        let items: Vec<_> = items;
        if items.is_empty() {
            faults.add(span.start, format!("{name} is no list of sections: write {title}"));
        }
        for item in items {
            match item.get_ref() {
                DeValue::Table(table) => sections.push(Section::new(&title, item.span().start, table)),
                _ => faults.add(item.span().start, format!("{name} is no list of sections: write {title}")),
            }
        }
        sections
    }

    /// The value of `key`, if it is there and `read` takes it.
    pub(super) fn optional<T>(
        &mut self,
        faults: &mut Faults<'_>,
        key: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<At<T>> {
        let (span, value) = self.entries.remove(key)?;
        match read(value) {
            Ok(value) => Some(At { value, at: span.start }),
            Err(reason) => {
                faults.add(span.start, format!("{key}: {reason}"));
                None
            }
        }
    }

    /// As [`Section::optional`], and a fault if it is missing.
    pub(super) fn required<T>(
        &mut self,
        faults: &mut Faults<'_>,
        key: &str,
        read: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<At<T>> {
        if !self.entries.contains_key(key) {
            faults.add(self.at, format!("{} has no '{key}'", self.name));
        }
        self.optional(faults, key, read)
    }

    /// Notes the keys that nobody took. `known` are those there are.
    pub(super) fn finish(self, faults: &mut Faults<'_>, known: &str) {
        for (key, (span, _)) in self.entries {
            faults.add(span.start, format!("{} has no setting '{key}': it has {known}", self.name));
        }
    }
}

/// Reads a string.
pub(super) fn string(value: &DeValue<'_>) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("is {}, and must be a string", value.type_str()))
}

/// Reads a whole number of a type.
pub(super) fn integer<T: TryFrom<i64>>(value: &DeValue<'_>) -> Result<T, String> {
    let integer =
        value.as_integer().ok_or_else(|| format!("is {}, and must be a number", value.type_str()))?;
    i64::from_str_radix(integer.as_str(), integer.radix())
        .ok()
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("{} is out of range", integer.as_str()))
}
