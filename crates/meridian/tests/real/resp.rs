//! A blocking RESP2 client, as plain as can be.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A server's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// `+OK`.
    Simple(String),
    /// `-ERR …`.
    Error(String),
    /// `:1`.
    Int(i64),
    /// `$…`, `None` is nil.
    Bulk(Option<String>),
    /// `*…`.
    Array(Vec<Value>),
}

impl Value {
    /// A string that is there.
    pub(crate) fn bulk(text: &str) -> Self {
        Self::Bulk(Some(text.to_owned()))
    }

    /// `OK`.
    pub(crate) fn ok() -> Self {
        Self::Simple("OK".to_owned())
    }

    /// The error's text; panics if the reply is none.
    pub(crate) fn error(&self) -> &str {
        match self {
            Self::Error(text) => text,
            other => panic!("expected an error, got {other:?}"),
        }
    }
}

/// One connection.
pub(crate) struct Client {
    reader: BufReader<Box<dyn Stream>>,
}

/// What a connection goes over.
pub(crate) trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

impl Client {
    /// Connects to a port on loopback.
    pub(crate) fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self::over(stream))
    }

    /// Speaks over a connection that stands.
    pub(crate) fn over(stream: impl Stream + 'static) -> Self {
        Self { reader: BufReader::new(Box::new(stream)) }
    }

    /// Connects; the server must be there.
    pub(crate) fn new(port: u16) -> Self {
        Self::connect(port).unwrap_or_else(|error| panic!("port {port}: {error}"))
    }

    /// Sends a command and reads its reply.
    pub(crate) fn ask(&mut self, words: &[&str]) -> io::Result<Value> {
        self.send(&encode(words))?;
        self.read()
    }

    /// The same; the server must answer.
    pub(crate) fn call(&mut self, words: &[&str]) -> Value {
        self.ask(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Reads one reply; an error once the server has closed the connection.
    pub(crate) fn read(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let nonsense = || io::Error::other(format!("not RESP2: {line:?}"));
        let (mark, rest) = line.trim_end().split_at_checked(1).ok_or_else(nonsense)?;
        let number = || rest.parse::<i64>().map_err(|_| nonsense());
        Ok(match mark {
            "+" => Value::Simple(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(number()?),
            "$" | "*" if number()? < 0 => Value::Bulk(None),
            "$" => {
                let mut bytes = vec![0; number()? as usize + 2];
                self.reader.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Value::Bulk(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
            "*" => Value::Array((0..number()?).map(|_| self.read()).collect::<io::Result<_>>()?),
            _ => return Err(nonsense()),
        })
    }
}

/// A command as an array of strings.
pub(crate) fn encode(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}
