//! Reading EDN, Clojure's notation for data, as far as histories use it.
//!
//! Own code, as it must bound depth and name lines, and because tags are to be read over: Jepsen writes records
//! as `#jepsen.history.Op{…}`. Nothing is evaluated, and numbers stay text: only equality matters here.

use std::borrow::Cow;

/// The deepest nesting that is read; histories have five levels.
const DEEPEST: usize = 64;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Edn<'a> {
    /// `nil`.
    Nil,
    /// A number, boolean or character as it stands, but without a sign `+` or a suffix for its precision.
    Atom(&'a str),
    /// A string.
    Text(Cow<'a, str>),
    /// A keyword, without its colon.
    Keyword(&'a str),
    /// A bare word.
    Symbol(&'a str),
    /// A vector or a list.
    Sequence(Vec<Self>),
    /// A map, in the order written.
    Map(Vec<(Self, Self)>),
    /// A set; histories have no use for one.
    Set,
}

impl<'a> Edn<'a> {
    /// What a map has under a keyword.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(key, _)| *key == Edn::Keyword(name)).map(|(_, value)| value)
    }

    /// A keyword's name.
    pub(super) fn keyword(&self) -> Option<&'a str> {
        if let Self::Keyword(name) = self { Some(name) } else { None }
    }

    /// The elements of a vector or list.
    pub(super) fn sequence(&self) -> Option<&[Self]> {
        if let Self::Sequence(elements) = self { Some(elements) } else { None }
    }

    /// The value as text, different for different values; `None` for what histories have no use for as a value.
    pub(super) fn spelled(&self) -> Option<Cow<'a, str>> {
        Some(match self {
            Self::Nil => Cow::Borrowed("nil"),
            Self::Atom(text) => Cow::Borrowed(text),
            Self::Text(text) => Cow::Owned(format!("{text:?}")),
            Self::Keyword(name) => Cow::Owned(format!(":{name}")),
            Self::Sequence(elements) => {
                let elements: Option<Vec<_>> = elements.iter().map(Self::spelled).collect();
                Cow::Owned(format!("[{}]", elements?.join(" ")))
            }
            Self::Symbol(_) | Self::Map(_) | Self::Set => return None,
        })
    }
}

/// Why text could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) line: usize,
    pub(super) reason: String,
    /// Whether more text could have mended it.
    pub(super) unfinished: bool,
}

/// The text from its first form on.
pub(super) fn without_comments(text: &str) -> &str {
    let mut reader = Reader::new(text);
    reader.skip_blank();
    &text[reader.at..]
}

/// Reads one form after another.
pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// How much of the text has been looked through for ends of lines, and how many it had.
    counted: (usize, usize),
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, counted: (0, 1) }
    }

    /// The line where the reader stands, from 1.
    pub(super) fn line(&mut self) -> usize {
        let (from, line) = self.counted;
        let passed = self.text[from..self.at].matches('\n').count();
        self.counted = (self.at, line + passed);
        self.counted.1
    }

    /// Goes to the next form and says on which line it begins; `None` at the end.
    pub(super) fn seek(&mut self) -> Option<usize> {
        self.skip_blank();
        (self.at < self.text.len()).then(|| self.line())
    }

    /// Passes over `byte` if it comes next.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        self.skip_blank();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Goes to the line after the one it stands on.
    pub(super) fn skip_line(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
    }

    /// The next form; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Edn<'a>>, Broken> {
        self.form(0)
    }

    fn form(&mut self, depth: usize) -> Result<Option<Edn<'a>>, Broken> {
        if depth > DEEPEST {
            return Err(self.broken(format!("is nested more than {DEEPEST} deep")));
        }
        loop {
            self.skip_blank();
            let Some(byte) = self.peek() else { return Ok(None) };
            self.at += 1;
            return Ok(Some(match byte {
                b'[' => Edn::Sequence(self.until(b']', depth)?),
                b'(' => Edn::Sequence(self.until(b')', depth)?),
                b'{' => self.map(depth)?,
                b'"' => self.string()?,
                b'\\' => self.character()?,
                b'#' => match self.peek() {
                    Some(b'{') => {
                        self.at += 1;
                        self.until(b'}', depth)?;
                        Edn::Set
                    }
                    Some(b'_') => {
                        self.at += 1;
                        self.required(depth + 1)?;
                        continue;
                    }
                    // A tag: what it tags is read as if it stood alone.
                    _ => {
                        self.word();
                        self.required(depth + 1)?
                    }
                },
                b']' | b')' | b'}' => {
                    return Err(self.broken(format!("has a '{}' that closes nothing", byte as char)));
                }
                _ => {
                    self.at -= 1;
                    self.bare()?
                }
            }));
        }
    }

    fn required(&mut self, depth: usize) -> Result<Edn<'a>, Broken> {
        match self.form(depth)? {
            Some(form) => Ok(form),
            None => Err(self.unfinished()),
        }
    }

    /// All forms up to the closing `end`.
    fn until(&mut self, end: u8, depth: usize) -> Result<Vec<Edn<'a>>, Broken> {
        let mut forms = Vec::new();
        loop {
            // A discarded form may stand last, so the end is looked for by who reads forms.
            if self.take(end) {
                return Ok(forms);
            }
            if self.rest().starts_with("#_") {
                self.at += 2;
                self.required(depth + 1)?;
                continue;
            }
            forms.push(self.required(depth + 1)?);
        }
    }

    fn map(&mut self, depth: usize) -> Result<Edn<'a>, Broken> {
        let forms = self.until(b'}', depth)?;
        if forms.len() % 2 == 1 {
            return Err(self.broken("has a map with a key and no value".into()));
        }
        let mut entries: Vec<(Edn<'_>, Edn<'_>)> = Vec::with_capacity(forms.len() / 2);
        let mut forms = forms.into_iter();
        while let (Some(key), Some(value)) = (forms.next(), forms.next()) {
            entries.push((key, value));
        }
        Ok(Edn::Map(entries))
    }

    fn string(&mut self) -> Result<Edn<'a>, Broken> {
        let rest = self.rest();
        let Some(end) = rest.find(['"', '\\']) else { return Err(self.unfinished()) };
        if rest.as_bytes()[end] == b'"' {
            self.at += end + 1;
            return Ok(Edn::Text(Cow::Borrowed(&rest[..end])));
        }
        let mut text = String::new();
        let mut letters = rest.char_indices();
        while let Some((index, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.at += index + 1;
                    return Ok(Edn::Text(Cow::Owned(text)));
                }
                '\\' => {
                    let Some((_, escaped)) = letters.next() else { break };
                    text.push(match escaped {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        'b' => '\u{8}',
                        'f' => '\u{c}',
                        '"' | '\\' => escaped,
                        'u' => {
                            let digits: String = letters.by_ref().take(4).map(|(_, digit)| digit).collect();
                            let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                            code.ok_or_else(|| self.broken(format!("has no letter \\u{digits}")))?
                        }
                        _ => return Err(self.broken(format!("has no escape \\{escaped}"))),
                    });
                }
                _ => text.push(letter),
            }
        }
        Err(self.unfinished())
    }

    fn character(&mut self) -> Result<Edn<'a>, Broken> {
        let from = self.at - 1;
        let Some(letter) = self.rest().chars().next() else { return Err(self.unfinished()) };
        self.at += letter.len_utf8();
        self.word();
        Ok(Edn::Atom(&self.text[from..self.at]))
    }

    /// A number, keyword, symbol or one of the three words with a meaning.
    fn bare(&mut self) -> Result<Edn<'a>, Broken> {
        let word = self.word();
        let unsigned = word.trim_start_matches(['+', '-']);
        Ok(match word {
            "nil" => Edn::Nil,
            "true" | "false" => Edn::Atom(word),
            _ if unsigned.starts_with(|c: char| c.is_ascii_digit()) => {
                Edn::Atom(word.trim_start_matches('+').trim_end_matches(['N', 'M']))
            }
            _ => match word.strip_prefix(':') {
                Some("") => return Err(self.broken("has a keyword without a name".into())),
                Some(name) => Edn::Keyword(name),
                None if word.is_empty() => return Err(self.broken("cannot be read".into())),
                None => Edn::Symbol(word),
            },
        })
    }

    /// All up to the next delimiter.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let delimits = |c: char| c.is_whitespace() || ",;\"()[]{}".contains(c);
        let word = &rest[..rest.find(delimits).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            self.at += rest.len()
                - rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == '\u{feff}').len();
            if self.peek() != Some(b';') {
                return;
            }
            self.skip_line();
        }
    }

    /// The text not read yet.
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn broken(&mut self, reason: String) -> Broken {
        Broken { line: self.line(), reason, unfinished: false }
    }

    fn unfinished(&mut self) -> Broken {
        self.at = self.text.len();
        Broken { line: self.line(), reason: "is not closed".into(), unfinished: true }
    }
}
