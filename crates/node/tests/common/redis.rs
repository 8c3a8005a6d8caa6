//! A real Redis to compare with.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A connection to a server.
pub(crate) struct Connection<S> {
    stream: S,
    buffer: Vec<u8>,
}

impl<S: Read + Write> Connection<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Sends bytes and waits for one answer.
    pub(crate) fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.stream.write_all(bytes).unwrap();
        loop {
            if let Some(end) = reply_end(&self.buffer, 0) {
                return self.buffer.drain(..end).collect();
            }
            let mut chunk = [0; 8192];
            let read = self.stream.read(&mut chunk).unwrap();
            assert!(read > 0, "the server closed the connection");
            self.buffer.extend_from_slice(&chunk[..read]);
        }
    }
}

/// A Redis of our own, stopped at the end.
pub(crate) struct Redis {
    process: Child,
    /// Where its socket is: a path of its own, as a port could be taken by another.
    _directory: tempfile::TempDir,
    connection: Connection<UnixStream>,
}

impl Redis {
    pub(crate) fn start() -> Option<Self> {
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("redis.sock");
        let process = Command::new(&program)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--databases", "2"])
            .args(["--proto-max-bulk-len", "8mb"])
            .args([
                "--unixsocket".as_ref(),
                socket.as_os_str(),
                "--dir".as_ref(),
                directory.path().as_os_str(),
            ])
            .stdout(Stdio::null())
            .spawn();
        let process = match process {
            Ok(process) => process,
            Err(error) => {
                let advice = format!("{program} does not start: {error}: install redis-server");
                assert!(std::env::var_os("MERIDIAN_REQUIRE_REDIS").is_none(), "{advice}");
                eprintln!("SKIPPED: nothing was compared: {advice}");
                return None;
            }
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                    let connection = Connection::new(stream);
                    return Some(Self { process, _directory: directory, connection });
                }
                Err(error) => assert!(Instant::now() < deadline, "redis-server does not listen: {error}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.connection.ask(bytes)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // Whatever goes wrong here, the process is of no more use.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where the reply that begins at `start` ends, if it is complete.
pub(crate) fn reply_end(bytes: &[u8], start: usize) -> Option<usize> {
    let line = bytes[start..].windows(2).position(|pair| pair == b"\r\n")? + start;
    let number = || std::str::from_utf8(&bytes[start + 1..line]).unwrap().parse::<i64>().unwrap();
    let items = match bytes[start] {
        b'$' | b'=' => {
            let length = number();
            let end = if length < 0 { line + 2 } else { line + 2 + length as usize + 2 };
            return (end <= bytes.len()).then_some(end);
        }
        b'*' | b'~' => number().max(0),
        b'%' => number() * 2,
        _ => 0,
    };
    (0..items).try_fold(line + 2, |end, _| if end < bytes.len() { reply_end(bytes, end) } else { None })
}
