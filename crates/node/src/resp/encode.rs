//! Writing answers in RESP2 or RESP3.

use bytes::{BufMut, BytesMut};
use meridian_protocol::object::{Fault, OBJECT_LIMIT, Reply, TypeName};
use std::borrow::Cow;

/// A version of RESP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// What every client speaks first.
    #[default]
    Resp2,
    /// Since `HELLO 3`: with maps, sets, nulls and verbatim strings.
    Resp3,
}

/// Appends answers to a buffer.
#[derive(Debug)]
pub struct Encoder<'a> {
    out: &'a mut BytesMut,
    protocol: Protocol,
}

impl<'a> Encoder<'a> {
    /// Writes to `out` in `protocol`.
    pub fn new(out: &'a mut BytesMut, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// `OK`.
    pub fn ok(&mut self) {
        self.out.put_slice(b"+OK\r\n");
    }

    /// A status.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error: its word, then what is wrong.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text.trim_end_matches(['\r', '\n']));
    }

    /// An integer.
    pub fn int(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// A string of bytes.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + 32);
        self.header(b'$', bytes.len() as i64);
        self.out.put_slice(bytes);
        self.out.put_slice(b"\r\n");
    }

    /// A text for people.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.header(b'=', text.len() as i64 + 4);
                self.out.put_slice(b"txt:");
                self.out.put_slice(text.as_bytes());
                self.out.put_slice(b"\r\n");
            }
        }
    }

    /// Nothing, where a string could be.
    pub fn null(&mut self) {
        self.out.put_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Nothing, where an array could be.
    pub fn null_array(&mut self) {
        self.out.put_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// An array, of which so many items follow.
    pub fn array(&mut self, items: usize) {
        self.header(b'*', items as i64);
    }

    /// A set, of which so many items follow.
    pub fn set(&mut self, items: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(items),
            Protocol::Resp3 => self.header(b'~', items as i64),
        }
    }

    /// A map, of which so many names and values follow.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(pairs * 2),
            Protocol::Resp3 => self.header(b'%', pairs as i64),
        }
    }

    /// What a command on one key answers; `nil` is the kind of nothing that it has.
    pub fn reply(&mut self, reply: &Reply, nil: Nil) {
        match reply {
            Reply::Ok => self.ok(),
            Reply::Nil => match nil {
                Nil::String => self.null(),
                Nil::Array => self.null_array(),
            },
            Reply::Int(number) => self.int(*number),
            Reply::Bulk(bytes) => self.bulk(bytes),
            Reply::Simple(name) => self.simple(type_name(*name)),
            Reply::List(items) => {
                self.array(items.len());
                for item in items {
                    self.bulk(item);
                }
            }
            Reply::Options(items) => {
                self.array(items.len());
                for item in items {
                    match item {
                        Some(bytes) => self.bulk(bytes),
                        None => self.null(),
                    }
                }
            }
            Reply::Pairs(items) => {
                self.map(items.len() / 2);
                for item in items {
                    self.bulk(item);
                }
            }
            Reply::Error(fault) => self.error(&fault_text(*fault)),
            // They are what nodes ask of keys among themselves.
            Reply::Claims(_) | Reply::Refused(_) => {
                self.error("ERR an answer to another question, which is a defect: please report it");
            }
        }
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.out.reserve(text.len() + 3);
        self.out.put_u8(kind);
        // What a client sent may stand in an error, and must not end it.
        self.out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
        self.out.put_slice(b"\r\n");
    }

    fn header(&mut self, kind: u8, number: i64) {
        let mut text = [0; 23];
        let mut start = text.len() - 2;
        text[start..].copy_from_slice(b"\r\n");
        let mut rest = number.unsigned_abs();
        loop {
            start -= 1;
            text[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            start -= 1;
            text[start] = b'-';
        }
        start -= 1;
        text[start] = kind;
        self.out.put_slice(&text[start..]);
    }
}

/// In which form a command answers that there is nothing; RESP2 has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nil {
    /// A missing string.
    String,
    /// A missing array.
    Array,
}

/// A type's name, as `TYPE` answers it.
pub fn type_name(name: TypeName) -> &'static str {
    match name {
        TypeName::None => "none",
        TypeName::String => "string",
        TypeName::List => "list",
        TypeName::Hash => "hash",
    }
}

/// A word as it may stand in an error: at most so many bytes, as Redis cuts it, none after a NUL, and a mark for
/// what is not UTF-8.
pub fn printable(word: &[u8], most: usize) -> String {
    let end = word.iter().take(most).position(|byte| *byte == 0).unwrap_or(word.len().min(most));
    String::from_utf8_lossy(&word[..end]).into_owned()
}

fn fault_text(fault: Fault) -> Cow<'static, str> {
    Cow::Borrowed(match fault {
        Fault::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
        Fault::NotAnInteger => "ERR value is not an integer or out of range",
        Fault::Overflow => "ERR increment or decrement would overflow",
        Fault::NotAFloat => "ERR value is not a valid float",
        Fault::NotFinite => "ERR increment would produce NaN or Infinity",
        Fault::HashNotAnInteger => "ERR hash value is not an integer",
        Fault::TooLong => {
            return format!("ERR value would exceed {OBJECT_LIMIT} bytes, the most that a key may hold")
                .into();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn written(protocol: Protocol, write: impl FnOnce(&mut Encoder<'_>)) -> String {
        let mut out = BytesMut::new();
        write(&mut Encoder::new(&mut out, protocol));
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn every_kind_has_its_form_in_both_versions() {
        let pairs = Reply::Pairs(vec![Bytes::from("f"), Bytes::from("v")]);
        let options = Reply::Options(vec![Some(Bytes::from("v")), None]);
        for (reply, nil, resp2, resp3) in [
            (Reply::Ok, Nil::String, "+OK\r\n", "+OK\r\n"),
            (Reply::Nil, Nil::String, "$-1\r\n", "_\r\n"),
            (Reply::Nil, Nil::Array, "*-1\r\n", "_\r\n"),
            (Reply::Int(i64::MIN), Nil::String, ":-9223372036854775808\r\n", ":-9223372036854775808\r\n"),
            (Reply::Int(0), Nil::String, ":0\r\n", ":0\r\n"),
            (Reply::Simple(TypeName::Hash), Nil::String, "+hash\r\n", "+hash\r\n"),
            (Reply::List(vec![]), Nil::String, "*0\r\n", "*0\r\n"),
            (options, Nil::String, "*2\r\n$1\r\nv\r\n$-1\r\n", "*2\r\n$1\r\nv\r\n_\r\n"),
            (pairs, Nil::String, "*2\r\n$1\r\nf\r\n$1\r\nv\r\n", "%1\r\n$1\r\nf\r\n$1\r\nv\r\n"),
        ] {
            assert_eq!(written(Protocol::Resp2, |to| to.reply(&reply, nil)), resp2);
            assert_eq!(written(Protocol::Resp3, |to| to.reply(&reply, nil)), resp3);
        }
        assert_eq!(written(Protocol::Resp2, |to| to.verbatim("a")), "$1\r\na\r\n");
        assert_eq!(written(Protocol::Resp3, |to| to.verbatim("a")), "=5\r\ntxt:a\r\n");
        assert_eq!(written(Protocol::Resp3, |to| to.set(2)), "~2\r\n");
    }

    #[test]
    fn an_error_stays_on_its_line() {
        assert_eq!(written(Protocol::Resp2, |to| to.error("ERR 'a\r\n+OK'")), "-ERR 'a  +OK'\r\n");
    }
}
