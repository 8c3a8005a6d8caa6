//! What one session tells another, as a line of text that fits into a header.

use crate::error::Error;
use std::fmt::{self, Display};
use std::str::FromStr;

/// The longest name of a service.
pub const NAME_MAX: usize = 64;

/// The longest context, in characters: four tokens of Meridian's at their longest, or some hundred services that have nothing to tell.
pub const LENGTH_MAX: usize = 4_608;

/// The version that a context begins with.
const VERSION: &str = "c1";

/// Which services a session has used, which of them it owes a fence, and what each must be told to go on after it.
///
/// As text it is `c1`, with a `+` if the session has used services that it has not got any more, then for each service `:`, its name, `!` if its fence is owed and `.` if not, and what it is told: letters,
/// digits, `-`, `_` and these four, so that it needs no escaping in a header, a cookie or an address. It is not signed: who changes it
/// loses the order that it would have kept, for themselves, and can do no more (what services are told they may sign; Meridian does).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    pub(crate) parts: Vec<Part>,
    /// Whether the session has used services that were unregistered since: who goes on after it enters others all the same.
    pub(crate) gone: bool,
}

/// What a context says of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) owed: bool,
    pub(crate) told: String,
}

/// Whether a service can be called so.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=NAME_MAX).contains(&text.len()) && is_plain(text)
}

/// Whether a service may tell this.
pub(crate) fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

impl Display for Context {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{VERSION}{}", if self.gone { "+" } else { "" })?;
        for Part { name, owed, told } in &self.parts {
            write!(to, ":{name}{}{told}", if *owed { '!' } else { '.' })?;
        }
        Ok(())
    }
}

impl FromStr for Context {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > LENGTH_MAX {
            return Err(Error::BadContext("it is too long"));
        }
        let Some(rest) = text.strip_prefix(VERSION) else {
            return Err(Error::BadContext("it begins with no version that is known"));
        };
        let (gone, rest) = rest.strip_prefix('+').map_or((false, rest), |rest| (true, rest));
        let mut parts: Vec<Part> = Vec::new();
        let mut texts = rest.split(':');
        if texts.next() != Some("") {
            return Err(Error::BadContext("it begins with no version that is known"));
        }
        for text in texts {
            let Some(mark) = text.find(['!', '.']) else {
                return Err(Error::BadContext("a part does not say whether a fence is owed"));
            };
            let (name, told) = (&text[..mark], &text[mark + 1..]);
            if !is_name(name) || !is_plain(told) {
                return Err(Error::BadContext("a part has a name or a word of other characters than it may"));
            }
            if parts.iter().any(|part| part.name == name) {
                return Err(Error::BadContext("it names a service twice"));
            }
            let owed = text[mark..].starts_with('!');
            parts.push(Part { name: name.to_owned(), owed, told: told.to_owned() });
        }
        Ok(Self { parts, gone })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_reads_as_it_was_written() {
        let text = "c1:photos!AZ-G0_:orders.:queue!";
        let context: Context = text.parse().unwrap();
        let parts: Vec<_> =
            context.parts.iter().map(|p| (p.name.as_str(), p.owed, p.told.as_str())).collect();
        assert_eq!(parts, [("photos", true, "AZ-G0_"), ("orders", false, ""), ("queue", true, "")]);
        assert_eq!(context.to_string(), text);
        assert_eq!("c1".parse::<Context>().unwrap(), Context::default());
        let gone: Context = "c1+:a.".parse().unwrap();
        assert!(gone.gone && !context.gone);
        assert_eq!(gone.to_string(), "c1+:a.");
    }

    #[test]
    fn what_is_none_is_refused_by_its_fault() {
        let long = format!("c1:a.{}", "x".repeat(LENGTH_MAX));
        for (text, why) in [
            ("", "version"),
            ("c2:a.", "version"),
            ("c1x:a.", "version"),
            ("c1++:a.", "version"),
            ("c1:a", "whether a fence is owed"),
            ("c1:", "whether a fence is owed"),
            ("c1:.x", "other characters"),
            ("c1:a b.x", "other characters"),
            ("c1:a.x!", "other characters"),
            ("c1:a.x\n", "other characters"),
            ("c1:a.:a!", "twice"),
            (long.as_str(), "too long"),
        ] {
            let refused = text.parse::<Context>().unwrap_err().to_string();
            assert!(refused.contains(why), "{text:?}: {refused}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_written_again_as_it_was(text in "(c1)?[+:!.a-c\u{e9} -]{0,20}") {
            if let Ok(context) = text.parse::<Context>() {
                prop_assert_eq!(context.to_string(), text);
            }
        }
    }
}
