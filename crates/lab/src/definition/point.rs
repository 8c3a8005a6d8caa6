//! Where in an experiment's sweep a run stands.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// One coordinate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Coordinate {
    /// A number.
    Number(f64),
    /// A word, or yes or no.
    Word(String),
}

impl Coordinate {
    /// Of a value in a definition; `None` if it is neither a number nor a word.
    pub(super) fn of(value: &toml::Value) -> Option<Self> {
        match value {
            toml::Value::Integer(number) => Some(Self::Number(*number as f64)),
            toml::Value::Float(number) => Some(Self::Number(*number)),
            toml::Value::String(word) => Some(Self::Word(word.clone())),
            toml::Value::Boolean(truth) => Some(Self::Word(truth.to_string())),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Word(_) => None,
        }
    }
}

impl fmt::Display for Coordinate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// Coordinates by axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Point(pub BTreeMap<String, Coordinate>);

impl Point {
    /// Whether this point has all coordinates of `other`.
    pub fn includes(&self, other: &Self) -> bool {
        other.0.iter().all(|(axis, coordinate)| self.0.get(axis) == Some(coordinate))
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (axis, coordinate)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{axis} {coordinate}")?;
        }
        Ok(())
    }
}
