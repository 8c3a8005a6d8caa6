//! Operations in words, and text that came from outside made harmless.

use crate::Why;
use meridian_protocol::history::{Access, Ended, Event, Kind, Mode};
use std::fmt::{self, Display, Formatter};

/// Text from outside, for HTML: markup means nothing in it, and what cannot be seen is shown as its code point.
pub(super) struct Text<'a>(pub(super) &'a str);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                _ if is_unseen(c) => write!(f, "{}", c.escape_unicode())?,
                _ => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

/// Controls, and marks that turn or join the text around them.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// The longest that a key, value or name may be in a table, in characters.
const LONG: usize = 40;

/// The longest that it may be in the drawing.
const SHORT: usize = 14;

/// How an absent key is drawn.
pub(super) const ABSENT: &str = "∅";

/// Shows what cannot be seen, and keeps both ends of what is too long.
fn shortened(text: &str, most: usize) -> String {
    let escaped = |c: char| if is_unseen(c) { c.escape_unicode().collect() } else { String::from(c) };
    let text: String = text.chars().map(escaped).collect();
    let length = text.chars().count();
    if length <= most {
        return text;
    }
    let half = (most - 1) / 2;
    let head: String = text.chars().take(most - 1 - half).collect();
    let tail: String = text.chars().skip(length - half).collect();
    format!("{head}…{tail}")
}

/// A name as it stands in the drawing.
pub(super) fn name(text: &str) -> String {
    shortened(text, SHORT)
}

/// An access as it stands in a bar: `r x=3`.
pub(super) fn brief(access: &Access) -> String {
    let mode = if access.mode == Mode::Read { "r" } else { "w" };
    let value = access.value.as_deref().map_or(ABSENT.to_string(), |value| shortened(value, SHORT));
    format!("{mode} {}={value}", shortened(&access.key, SHORT))
}

/// What an operation did: `read x = 3, wrote x = 4`. Not yet escaped.
pub(super) fn deeds(event: &Event) -> String {
    let mut text = match event.ops.is_empty() {
        true if event.kind == Kind::Fence => "fence".to_string(),
        true => "touched nothing".to_string(),
        false => String::new(),
    };
    for (index, access) in event.ops.iter().enumerate() {
        let mode = if access.mode == Mode::Read { "read" } else { "wrote" };
        let value = access.value.as_deref().map_or("(absent)".to_string(), |value| shortened(value, LONG));
        let separator = if index == 0 { "" } else { ", " };
        text.extend([separator, mode, " ", &shortened(&access.key, LONG), " = ", &value]);
    }
    text.push_str(match event.outcome {
        Ended::Ok => "",
        Ended::Failed => " (failed)",
        Ended::Unknown => " (outcome unknown)",
    });
    text
}

/// An operation with its number and session: `op 7: p1 at db0 read x = 3`. Not yet escaped.
pub(super) fn sentence(event: &Event) -> String {
    format!("op {}: {} {}", event.id, place(event), deeds(event))
}

/// Who did it, and at which service. Not yet escaped.
pub(super) fn place(event: &Event) -> String {
    let session = shortened(&event.session, LONG);
    if event.service.is_empty() {
        session
    } else {
        format!("{session} at {}", shortened(&event.service, LONG))
    }
}

/// From when to when it took place.
pub(super) fn duration(event: &Event) -> String {
    let end = super::layout::end(event).map_or("not known when".to_string(), |end| end.to_string());
    format!("{} to {end}", event.invoke)
}

/// How a reason is drawn: a class of the style sheet, its dashes, and its name.
pub(super) fn style(why: Why) -> (&'static str, &'static str, &'static str) {
    match why {
        Why::Session => ("session", "", "process order: the session did one after the other"),
        Why::RealTime => ("realtime", "12 5", "real time: it had returned before the other was invoked"),
        Why::Message => ("message", "12 4 2 4", "message: its result was told to the other's session"),
        Why::Saw => ("saw", "2 4", "reads-from: the other saw what it wrote"),
        Why::Replaced => ("replaced", "6 4", "overwritten: the other replaced what it wrote or saw"),
        Why::Hidden => ("replaced", "6 4 1 4", "hidden: one that came after it saw what the other wrote"),
        Why::Known => ("saw", "2 4 8 4", "known: it was in the view of the other"),
        Why::Preferred => ("replaced", "6 2", "preferred: the read returned what the other wrote"),
        Why::Passed => ("replaced", "3 3", "passed over: a read knew it and returned what the other wrote"),
        Why::Version => ("session", "10 3", "version: the engine gave the other a higher one"),
        Why::Fence => ("fence", "12 4 2 4 2 4", "fence: a fence stands between"),
    }
}
