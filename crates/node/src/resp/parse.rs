//! Finding commands in the bytes that a client sends: arrays of bulk strings, or lines of words.
//!
//! Nothing is allocated because a header announces it, and nothing is copied: the words of a command are
//! spans of the buffer in which they arrived. Errors are worded as Redis words them.

use bytes::Bytes;
use meridian_protocol::object::integer;
use std::borrow::Cow;
use std::ops::{Index, Range};

/// The most words that a command may have.
pub const ARGS_MAX: usize = 1024 * 1024;
/// The most bytes that a command may have, headers included.
pub const COMMAND_MAX: usize = 64 * 1024 * 1024;
/// The longest string that is passed over, so that the connection can go on; Redis's limit unless set otherwise.
pub const SKIPPED_MAX: usize = 512 * 1024 * 1024;
/// The most bytes that a line of words may have.
pub const INLINE_MAX: usize = 64 * 1024;
/// The most bytes that the line with a count or length may have; the longest good one has nine.
const HEADER_MAX: usize = 64;
/// The most words, and the longest string, of a client that has not said who it is: it must not fill memory.
const STRANGER: (usize, usize) = (10, 16_384);

/// Finds one command after the other. The command stays in the buffer until it has been carried out; then its
/// bytes are dropped and [`Parser::next`] looks for another.
#[derive(Debug, Default)]
pub struct Parser {
    /// How many bytes of the command have been understood.
    position: usize,
    /// What stands at that position.
    expected: Expected,
    /// The words found so far.
    spans: Vec<Range<u32>>,
    /// The words of a line, without quotes and escapes; in use if the command is a line.
    line: Option<Vec<u8>>,
    /// The command is too long: its words are passed over.
    oversize: Option<Oversize>,
    /// The client has not said who it is.
    stranger: bool,
}

/// How a command is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oversize {
    /// It has a string of so many bytes.
    String(usize),
    /// It has more than [`COMMAND_MAX`] bytes.
    Command,
}

/// A violation of the protocol: the text of the error that ends the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError(pub Cow<'static, str>);

#[derive(Clone, Copy, Debug, Default)]
enum Expected {
    /// A command's first byte.
    #[default]
    Command,
    /// More of a line of words, searched as far as the position.
    Line,
    /// The length of a string, of so many that are still to come.
    Length(usize),
    /// A string of that length, the first of so many that are still to come.
    Text(usize, usize),
    /// So many bytes of a string that is passed over, the first of so many that are still to come.
    Skipped(usize, usize),
    /// Nothing: the command is complete.
    Nothing,
}

impl Parser {
    /// Looks for a complete command at the start of `input`, going on where the last call ended: `input` must
    /// begin with the same bytes again, but for those to [`Parser::forget`]. A command with a string longer than
    /// `bulk_max` is passed over.
    ///
    /// A command without words is complete too.
    ///
    /// # Errors
    /// What is wrong; the connection cannot go on.
    pub fn parse(&mut self, input: &[u8], bulk_max: usize) -> Result<bool, ProtocolError> {
        loop {
            let proceeded = match self.expected {
                Expected::Nothing => return Ok(true),
                Expected::Command => match input.first() {
                    None => false,
                    Some(b'*') => self.count(input)?,
                    Some(_) => {
                        self.expected = Expected::Line;
                        true
                    }
                },
                Expected::Line => self.line(input)?,
                Expected::Length(left) => self.length(input, left, bulk_max)?,
                Expected::Text(length, left) => self.text(input, length, left)?,
                Expected::Skipped(length, left) => self.skip(input, length, left),
            };
            if !proceeded {
                return Ok(false);
            }
        }
    }

    /// Says whether the client has not yet said who it is: then its commands must be short.
    pub fn expect_stranger(&mut self, stranger: bool) {
        self.stranger = stranger;
    }

    /// The words of the complete command at the start of `input`.
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        Args { buffer: self.line.as_deref().unwrap_or(input), spans: &self.spans }
    }

    /// Whether a complete command stands at the start of the input.
    pub fn complete(&self) -> bool {
        matches!(self.expected, Expected::Nothing)
    }

    /// How many bytes of the input have been understood: of a complete command, all that it has.
    pub fn consumed(&self) -> usize {
        self.position
    }

    /// How many bytes at the start of the input are of no use any more, as they belong to a command that is passed
    /// over. The caller drops them.
    pub fn forget(&mut self) -> usize {
        if self.oversize.is_some() { std::mem::take(&mut self.position) } else { 0 }
    }

    /// Whether the command is too long to be carried out; it has no words then.
    pub fn oversize(&self) -> Option<Oversize> {
        self.oversize
    }

    /// Looks for a new command next, at the start of the input.
    pub fn next(&mut self) {
        const KEPT: usize = 1024;
        self.position = 0;
        self.expected = Expected::Command;
        self.spans.clear();
        if self.spans.capacity() > KEPT {
            self.spans.shrink_to(KEPT);
        }
        self.line = None;
        self.oversize = None;
    }

    /// `*count`.
    fn count(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        let Some((number, end)) = header(input, self.position, "too big mbulk count string")? else {
            return Ok(false);
        };
        let count = match number {
            Some(count) if self.stranger && count > STRANGER.0 as i64 => {
                return Err(error("unauthenticated multibulk length"));
            }
            Some(count) if count <= ARGS_MAX as i64 => count.max(0) as usize,
            _ => return Err(error("invalid multibulk length")),
        };
        self.position = end;
        self.expected = if count == 0 { Expected::Nothing } else { Expected::Length(count) };
        Ok(true)
    }

    /// `$length`.
    fn length(&mut self, input: &[u8], left: usize, bulk_max: usize) -> Result<bool, ProtocolError> {
        match input.get(self.position) {
            None => return Ok(false),
            Some(b'$') => {}
            Some(other) => {
                let shown = char::from(*other);
                let shown = if matches!(shown, '\r' | '\n') { ' ' } else { shown };
                return Err(ProtocolError(format!("expected '$', got '{shown}'").into()));
            }
        }
        let Some((number, end)) = header(input, self.position, "too big bulk count string")? else {
            return Ok(false);
        };
        let length = match number.map(usize::try_from) {
            Some(Ok(length)) if self.stranger && length > STRANGER.1 => {
                return Err(error("unauthenticated bulk length"));
            }
            Some(Ok(length)) if length <= SKIPPED_MAX.max(bulk_max) => length,
            _ => return Err(error("invalid bulk length")),
        };
        self.position = end;
        if length > bulk_max {
            self.oversize = Some(Oversize::String(length));
        } else if end + length > COMMAND_MAX && self.oversize.is_none() {
            self.oversize = Some(Oversize::Command);
        }
        self.expected = if self.oversize.is_some() {
            self.spans.clear();
            Expected::Skipped(length, left)
        } else {
            Expected::Text(length, left)
        };
        Ok(true)
    }

    fn skip(&mut self, input: &[u8], length: usize, left: usize) -> bool {
        let there = length.min(input.len() - self.position);
        self.position += there;
        // Behind the string comes its end, as behind an empty one.
        self.expected =
            if there == length { Expected::Text(0, left) } else { Expected::Skipped(length - there, left) };
        there == length
    }

    fn text(&mut self, input: &[u8], length: usize, left: usize) -> Result<bool, ProtocolError> {
        let end = self.position + length;
        match input.get(end..end + 2) {
            None => return Ok(false),
            Some(b"\r\n") => {}
            // Redis goes on here, and takes data for headers.
            Some(_) => return Err(error("expected CRLF after a string")),
        }
        if self.oversize.is_none() {
            self.spans.push(self.position as u32..end as u32);
        }
        self.position = end + 2;
        self.expected = if left == 1 { Expected::Nothing } else { Expected::Length(left - 1) };
        Ok(true)
    }

    /// A line of words.
    fn line(&mut self, input: &[u8]) -> Result<bool, ProtocolError> {
        let Some(end) = input[self.position..].iter().position(|byte| *byte == b'\n') else {
            self.position = input.len();
            return if input.len() > INLINE_MAX { Err(error("too big inline request")) } else { Ok(false) };
        };
        let end = self.position + end;
        if end > INLINE_MAX {
            return Err(error("too big inline request"));
        }
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        let mut words = Vec::with_capacity(line.len());
        split_words(line, &mut words, &mut self.spans)
            .ok_or_else(|| error("unbalanced quotes in request"))?;
        self.line = Some(words);
        self.position = end + 1;
        self.expected = Expected::Nothing;
        Ok(true)
    }
}

/// The words of a command, its name first.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    buffer: &'a [u8],
    spans: &'a [Range<u32>],
}

impl<'a> Args<'a> {
    /// How many words there are.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// A word, if there are so many.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| &self.buffer[span.start as usize..span.end as usize])
    }

    /// A copy of a word, so that a key does not hold a whole buffer in memory.
    ///
    /// # Panics
    /// If there are not so many words.
    pub fn bytes(&self, index: usize) -> Bytes {
        Bytes::copy_from_slice(&self[index])
    }

    /// Copies of all words from `first` on.
    pub fn rest(&self, first: usize) -> Vec<Bytes> {
        (first..self.len()).map(|index| self.bytes(index)).collect()
    }

    /// The words from `first` on, as a command of their own; none if there are not so many.
    #[must_use]
    pub fn skip(self, first: usize) -> Self {
        Self { spans: self.spans.get(first..).unwrap_or_default(), ..self }
    }

    /// All words.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let buffer = self.buffer;
        self.spans.iter().map(move |span| &buffer[span.start as usize..span.end as usize])
    }
}

/// Words kept for later, as `MULTI` keeps them.
#[derive(Clone, Debug, Default)]
pub struct OwnedArgs {
    buffer: Vec<u8>,
    spans: Vec<Range<u32>>,
}

impl OwnedArgs {
    /// Copies the words.
    pub fn copy(args: Args<'_>) -> Self {
        let mut owned = Self::default();
        for word in args.iter() {
            let start = owned.buffer.len() as u32;
            owned.buffer.extend_from_slice(word);
            owned.spans.push(start..owned.buffer.len() as u32);
        }
        owned
    }

    /// The words.
    pub fn args(&self) -> Args<'_> {
        Args { buffer: &self.buffer, spans: &self.spans }
    }

    /// How many bytes the words take.
    pub fn bytes(&self) -> usize {
        self.buffer.len() + self.spans.len() * size_of::<Range<u32>>()
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        let span = &self.spans[index];
        &self.buffer[span.start as usize..span.end as usize]
    }
}

fn error(text: &'static str) -> ProtocolError {
    ProtocolError(Cow::Borrowed(text))
}

/// A number after a type's byte, `None` if it is none, and where the next line begins.
type Header = (Option<i64>, usize);

/// Reads the line that begins at `start` with a type's byte, if all of it is there.
fn header(input: &[u8], start: usize, too_long: &'static str) -> Result<Option<Header>, ProtocolError> {
    let rest = &input[start + 1..];
    if let Some((number, length)) = small_number(rest) {
        return Ok(Some((Some(number), start + 1 + length)));
    }
    let Some(end) = rest.iter().take(HEADER_MAX).position(|byte| *byte == b'\r') else {
        return if rest.len() >= HEADER_MAX { Err(error(too_long)) } else { Ok(None) };
    };
    match rest.get(end + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some((integer(&rest[..end]), start + 1 + end + 2))),
        Some(_) => Err(error("expected CRLF after a length")),
    }
}

/// The usual header: up to three digits and the end of the line; the number and how long it all is.
fn small_number(rest: &[u8]) -> Option<(i64, usize)> {
    let digit = |byte: &u8| i64::from(byte - b'0');
    Some(match rest {
        [a @ b'0'..=b'9', b'\r', b'\n', ..] => (digit(a), 3),
        [a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] => (digit(a) * 10 + digit(b), 4),
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', b'\r', b'\n', ..] => {
            (digit(a) * 100 + digit(b) * 10 + digit(c), 5)
        }
        _ => return None,
    })
}

/// Splits a line as Redis does: words between blanks, `"…"` with escapes, `'…'` with `\'`. `None` if a quote is
/// not closed, or closed in the middle of a word.
fn split_words(line: &[u8], words: &mut Vec<u8>, spans: &mut Vec<Range<u32>>) -> Option<()> {
    let blank = |byte: u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c);
    let mut rest = line;
    loop {
        while let [first, tail @ ..] = rest
            && blank(*first)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Some(());
        }
        let start = words.len() as u32;
        loop {
            rest = match rest {
                [] | [b' ' | b'\n' | b'\r' | b'\t' | 0, ..] => break,
                [b'"', tail @ ..] => quoted(tail, words)?,
                [b'\'', tail @ ..] => single_quoted(tail, words)?,
                [byte, tail @ ..] => {
                    words.push(*byte);
                    tail
                }
            };
        }
        spans.push(start..words.len() as u32);
        // A NUL ends the line, as Redis handles it as a C string.
        if rest.first() == Some(&0) {
            return Some(());
        }
    }
}

fn quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Option<&'a [u8]> {
    let hex = |byte: u8| char::from(byte).to_digit(16);
    loop {
        rest = match rest {
            [b'"', tail @ ..] => return closed(tail),
            [b'\\', b'x', high, low, tail @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                words.push((hex(*high)? << 4 | hex(*low)?) as u8);
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                words.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                tail
            }
            [byte, tail @ ..] if *byte != 0 => {
                words.push(*byte);
                tail
            }
            _ => return None,
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], words: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\'', tail @ ..] => return closed(tail),
            [b'\\', b'\'', tail @ ..] => {
                words.push(b'\'');
                tail
            }
            [byte, tail @ ..] if *byte != 0 => {
                words.push(*byte);
                tail
            }
            _ => return None,
        }
    }
}

/// A closing quote must end its word.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    match rest {
        [] | [0 | b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c, ..] => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BULK_MAX: usize = 1000;

    /// All commands in `input`, then whether more is awaited or what is wrong.
    fn all(input: &[u8]) -> (Vec<Vec<Vec<u8>>>, Result<(), String>) {
        let (mut parser, mut rest, mut commands) = (Parser::default(), input, Vec::new());
        loop {
            match parser.parse(rest, BULK_MAX) {
                Ok(true) => {
                    commands.push(parser.args(rest).iter().map(<[u8]>::to_vec).collect());
                    rest = &rest[parser.consumed()..];
                    parser.next();
                }
                Ok(false) => return (commands, Ok(())),
                Err(ProtocolError(text)) => return (commands, Err(text.into_owned())),
            }
        }
    }

    fn words(input: &[u8]) -> Vec<Vec<String>> {
        let (commands, end) = all(input);
        assert_eq!(end, Ok(()));
        let text = |word: Vec<u8>| String::from_utf8(word).unwrap();
        commands.into_iter().map(|command| command.into_iter().map(text).collect()).collect()
    }

    #[test]
    fn arrays_of_strings_are_commands() {
        assert_eq!(
            words(b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n*1\r\n$0\r\n\r\n*1\r\n$4\r\nPI"),
            [vec!["GET", "\r\n"], vec![""]]
        );
        assert_eq!(words(b"*0\r\n*-1\r\n*1\r\n$1\r\na\r\n"), [vec![], vec![], vec!["a"]]);
    }

    #[test]
    fn lines_are_commands() {
        assert_eq!(words(b"PING\r\n  set  a\tb \n\r\n"), [vec!["PING"], vec!["set", "a", "b"], vec![]]);
        assert_eq!(
            words(b"a \"b c\\x41\\n\\\"\" 'd \\' e\\n' \"\" x\"y\"\n"),
            [vec!["a", "b cA\n\"", "d ' e\\n", "", "xy"]]
        );
    }

    #[test]
    fn violations_are_worded_as_in_redis() {
        for (input, expected) in [
            (&b"*x\r\n"[..], "invalid multibulk length"),
            (b"*1048577\r\n", "invalid multibulk length"),
            (b"*1 \r\n", "invalid multibulk length"),
            (b"*1\r\n$1073741824\r\n", "invalid bulk length"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
            (b"*1\r\n:3\r\n", "expected '$', got ':'"),
            (b"*1\r\n\r\n", "expected '$', got ' '"),
            (b"*1\r\n$1\r\nabc", "expected CRLF after a string"),
            (b"*1\rx", "expected CRLF after a length"),
            (b"\"a\n", "unbalanced quotes in request"),
            (b"\"a\"b\n", "unbalanced quotes in request"),
            (b"'a\n", "unbalanced quotes in request"),
            (&vec![b'1'; INLINE_MAX + 1], "too big inline request"),
            (&[&b"*"[..], &[b'1'; 64]].concat(), "too big mbulk count string"),
            (&[&b"*1\r\n$"[..], &[b'1'; 64]].concat(), "too big bulk count string"),
        ] {
            assert_eq!(all(input).1, Err(expected.to_owned()), "{:?}", String::from_utf8_lossy(input));
        }
    }

    /// Parses input that arrives in pieces, dropping what can be; answers the most bytes that were held.
    fn held(parser: &mut Parser, pieces: impl Iterator<Item = Vec<u8>>, bulk_max: usize) -> usize {
        let (mut input, mut most) = (Vec::new(), 0);
        for piece in pieces {
            input.extend_from_slice(&piece);
            most = most.max(input.len());
            assert_eq!(parser.parse(&input, bulk_max), Ok(false));
            input.drain(..parser.forget());
        }
        input.extend_from_slice(b"\n");
        assert_eq!(parser.parse(&input, bulk_max), Ok(true));
        assert_eq!(parser.consumed(), input.len());
        most
    }

    #[test]
    fn a_long_string_is_passed_over_and_not_held() {
        let mut parser = Parser::default();
        let head = b"*3\r\n$3\r\nSET\r\n$5000000\r\n".to_vec();
        let text = std::iter::repeat_n(vec![b'x'; 1000], 5000);
        let end = b"\r\n$1\r\nv\r".to_vec();
        let pieces = std::iter::once(head).chain(text).chain(std::iter::once(end));
        assert!(held(&mut parser, pieces, BULK_MAX) < 1100);
        assert_eq!(parser.oversize(), Some(Oversize::String(5_000_000)));
        assert!(parser.args(b"").is_empty());
        parser.next();
        assert_eq!(parser.parse(b"PING\n", BULK_MAX), Ok(true));
        assert_eq!((parser.oversize(), parser.args(b"PING\n").len()), (None, 1));
        assert!(all(b"*1\r\n$2000\r\n").1.is_ok(), "the string may still come");
    }

    #[test]
    fn a_command_is_bounded_as_a_whole() {
        let mut parser = Parser::default();
        let chunk = 32 * 1024 * 1024 - 100;
        let string =
            |length: usize| [format!("${length}\r\n").as_bytes(), &vec![b'x'; length], b"\r"].concat();
        let more = |length| [b"\n".to_vec(), string(length)].concat();
        let pieces = [b"*4\r\n".to_vec(), string(chunk), more(chunk), more(1000), more(1000)];
        assert!(held(&mut parser, pieces.into_iter(), chunk) < COMMAND_MAX + 1100, "and one piece");
        assert_eq!(parser.oversize(), Some(Oversize::Command));
    }

    #[test]
    fn words_can_be_kept() {
        let input = b"*2\r\n$1\r\na\r\n$2\r\nbc\r\n";
        let mut parser = Parser::default();
        assert_eq!(parser.parse(input, BULK_MAX), Ok(true));
        let owned = OwnedArgs::copy(parser.args(input));
        assert_eq!(owned.args().iter().collect::<Vec<_>>(), [&b"a"[..], b"bc"]);
        assert_eq!((owned.args().len(), owned.args().get(2)), (2, None));
    }
}
