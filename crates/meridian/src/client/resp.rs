//! The client's side of RESP2: writes commands, reads replies.
//!
//! It shares nothing with the server's codec, so that neither can hide the other's mistakes.

use bytes::BytesMut;

/// A server's reply, as it lies in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// `+…`
    Simple(&'a [u8]),
    /// `-…`
    Error(&'a [u8]),
    /// `:…`
    Integer(i64),
    /// `$…`; `None` is nil, of strings and of arrays.
    Bulk(Option<&'a [u8]>),
    /// `*…`
    Array(Vec<Self>),
}

/// Replies nested deeper than this come from no server that this client asks.
const DEPTH_MAX: usize = 8;

/// The longest line and the longest string that are believed: far above what the commands here can answer.
const LINE_MAX: usize = 64 * 1024;
const BULK_MAX: usize = 512 * 1024 * 1024;

/// Appends a command of these words.
pub(crate) fn command(words: &[&str], buffer: &mut BytesMut) {
    begin(words.len(), buffer);
    for text in words {
        word(text, buffer);
    }
}

/// Begins a command of so many words.
pub(crate) fn begin(words: usize, buffer: &mut BytesMut) {
    header(b'*', words, buffer);
}

/// Appends the next word of a command.
pub(crate) fn word(text: &str, buffer: &mut BytesMut) {
    header(b'$', text.len(), buffer);
    buffer.extend_from_slice(text.as_bytes());
    buffer.extend_from_slice(b"\r\n");
}

fn header(mark: u8, number: usize, buffer: &mut BytesMut) {
    let mut digits = [0_u8; 24];
    let mut at = digits.len() - 2;
    digits[at..].copy_from_slice(b"\r\n");
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    at -= 1;
    digits[at] = mark;
    buffer.extend_from_slice(&digits[at..]);
}

/// Reads the reply at the front of `input`, with its length; `None` if it has not all arrived.
///
/// # Errors
/// Why the bytes are no RESP2.
pub(crate) fn first_reply(input: &[u8]) -> Result<Option<(Reply<'_>, usize)>, String> {
    let mut cursor = Cursor { input, at: 0 };
    let reply = cursor.reply(DEPTH_MAX)?;
    Ok(reply.map(|reply| (reply, cursor.at)))
}

struct Cursor<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn reply(&mut self, depth: usize) -> Result<Option<Reply<'a>>, String> {
        let Some(line) = self.line()? else { return Ok(None) };
        let Some((mark, rest)) = line.split_first() else { return Err("an empty reply".to_owned()) };
        match mark {
            b'+' => Ok(Some(Reply::Simple(rest))),
            b'-' => Ok(Some(Reply::Error(rest))),
            b':' => Ok(Some(Reply::Integer(number(rest)?))),
            b'$' => self.bulk(number(rest)?),
            b'*' if depth == 0 => Err("replies nested too deeply".to_owned()),
            b'*' => self.array(number(rest)?, depth),
            other => Err(format!("a reply of unknown type '{}'", other.escape_ascii())),
        }
    }

    fn bulk(&mut self, length: i64) -> Result<Option<Reply<'a>>, String> {
        if length == -1 {
            return Ok(Some(Reply::Bulk(None)));
        }
        let length = usize::try_from(length).ok().filter(|length| *length <= BULK_MAX);
        let length = length.ok_or("a string of impossible length")?;
        let Some(bytes) = self.input.get(self.at..self.at + length + 2) else { return Ok(None) };
        self.at += bytes.len();
        match bytes.strip_suffix(b"\r\n") {
            Some(bytes) => Ok(Some(Reply::Bulk(Some(bytes)))),
            None => Err("a string that is longer than it says".to_owned()),
        }
    }

    fn array(&mut self, count: i64, depth: usize) -> Result<Option<Reply<'a>>, String> {
        if count == -1 {
            return Ok(Some(Reply::Bulk(None)));
        }
        let count = u32::try_from(count).map_err(|_| "an array of impossible length")?;
        let mut items = Vec::new();
        for _ in 0..count {
            match self.reply(depth - 1)? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        Ok(Some(Reply::Array(items)))
    }

    /// The bytes up to the next line end, which is skipped.
    fn line(&mut self) -> Result<Option<&'a [u8]>, String> {
        let rest = &self.input[self.at..];
        match rest.iter().take(LINE_MAX).position(|byte| *byte == b'\n') {
            Some(end) => {
                self.at += end + 1;
                rest[..end]
                    .strip_suffix(b"\r")
                    .map(Some)
                    .ok_or_else(|| "a line that ends in LF alone".to_owned())
            }
            None if rest.len() >= LINE_MAX => Err("a line without an end".to_owned()),
            None => Ok(None),
        }
    }
}

fn number(bytes: &[u8]) -> Result<i64, String> {
    let digits = std::str::from_utf8(bytes).ok();
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("'{}' is no number", bytes.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut input: &[u8]) -> Result<Vec<Reply<'_>>, String> {
        let mut replies = Vec::new();
        while let Some((reply, length)) = first_reply(input)? {
            replies.push(reply);
            input = &input[length..];
        }
        Ok(replies)
    }

    #[test]
    fn commands_are_arrays_of_strings() {
        let mut buffer = BytesMut::new();
        command(&["SET", "key:000000000042", ""], &mut buffer);
        assert_eq!(&buffer[..], b"*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000042\r\n$0\r\n\r\n");
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let replies = all(b"+OK\r\n-ERR no\r\n:-7\r\n$2\r\nhi\r\n$-1\r\n*-1\r\n*2\r\n$0\r\n\r\n*1\r\n:1\r\n");
        assert_eq!(
            replies,
            Ok(vec![
                Reply::Simple(b"OK"),
                Reply::Error(b"ERR no"),
                Reply::Integer(-7),
                Reply::Bulk(Some(b"hi")),
                Reply::Bulk(None),
                Reply::Bulk(None),
                Reply::Array(vec![Reply::Bulk(Some(b"")), Reply::Array(vec![Reply::Integer(1)])]),
            ])
        );
    }

    #[test]
    fn half_a_reply_waits_for_the_rest() {
        let whole = b"*2\r\n$5\r\nhello\r\n:12\r\n";
        for cut in 0..whole.len() {
            assert_eq!(first_reply(&whole[..cut]), Ok(None), "cut at {cut}");
        }
        let (reply, length) = first_reply(whole).unwrap().unwrap();
        assert_eq!(reply, Reply::Array(vec![Reply::Bulk(Some(b"hello")), Reply::Integer(12)]));
        assert_eq!(length, whole.len());
    }

    #[test]
    fn nonsense_is_an_error() {
        for bad in [
            &b"HTTP/1.1 400\r\n"[..],
            b"\r\n",
            b":12a\r\n",
            b"+OK\n",
            b"$2\r\nabcd",
            b"$-2\r\n",
            b"$99999999999999999999\r\n",
            b"*-5\r\n",
            b"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
        ] {
            assert!(all(bad).is_err(), "{}", bad.escape_ascii());
        }
        assert!(all(&vec![b'+'; LINE_MAX + 1]).is_err());
    }
}
