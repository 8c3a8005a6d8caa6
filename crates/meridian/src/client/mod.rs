//! The client's side, for commands that ask servers: reaching them, saying who one is, asking.

pub(crate) mod resp;

use crate::fault::Fault;
use bytes::BytesMut;
use meridian_node::{Dialer, Stream};
use resp::Reply;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;
use tokio::net::TcpStream;

/// Who one is to the servers, and how one makes sure of them.
#[derive(Debug, clap::Args)]
pub(crate) struct Access {
    /// User to AUTH as, with a password
    #[arg(long, value_name = "U", requires = "secret")]
    user: Option<String>,
    /// Password to AUTH with; whoever lists processes reads it: see --password-file
    #[arg(long, value_name = "P", group = "secret")]
    password: Option<Password>,
    /// File whose first line is the password to AUTH with
    #[arg(long, value_name = "FILE", group = "secret")]
    password_file: Option<PathBuf>,
    /// Connect with TLS
    #[arg(long)]
    tls: bool,
    /// Who has signed the servers' certificates, in PEM [default: the authorities that this system believes]
    #[arg(long, value_name = "FILE", requires = "tls")]
    ca: Option<PathBuf>,
    /// Certificate to show, in PEM, where servers ask for one
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    cert: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// Take any certificate for good: whoever stands in between can read and change everything
    #[arg(long, requires = "tls", conflicts_with = "ca")]
    insecure: bool,
}

/// Does not show itself.
#[derive(Clone)]
struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl FromStr for Password {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl Access {
    /// Reads what its files say.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub(crate) fn open(&self) -> Result<Rc<Opened>, Vec<Fault>> {
        let mut faults = Vec::new();
        let password = match (&self.password, &self.password_file) {
            (Some(password), _) => Some(password.clone()),
            (None, Some(path)) => read_password(path).map_err(|fault| faults.push(fault)).ok(),
            (None, None) => None,
        };
        let dialer = self.tls.then(|| self.dialer()).transpose();
        let dialer = dialer.map_err(|why| {
            faults.push(Fault::new("--tls", why, "give --ca, --cert and --key files that are sound PEM"));
        });
        match dialer {
            Ok(dialer) if faults.is_empty() => {
                let credentials = password.map(|password| (self.user.clone(), password));
                Ok(Rc::new(Opened { credentials, dialer }))
            }
            _ => Err(faults),
        }
    }

    fn dialer(&self) -> Result<Dialer, String> {
        let identity = self.cert.as_deref().zip(self.key.as_deref());
        if self.insecure {
            Dialer::believing_anybody(identity)
        } else {
            Dialer::believing(self.ca.as_deref(), identity)
        }
    }
}

fn read_password(path: &Path) -> Result<Password, Fault> {
    let what = || format!("--password-file {}", path.display());
    let text = std::fs::read_to_string(path)
        .map_err(|error| Fault::new(what(), error, "name a file whose first line is the password"))?;
    let line = text.lines().next().unwrap_or_default();
    // The same file may serve [[user]] password_file, which takes a hash too.
    let is_hash = |hash: &str| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    if line.is_empty() || line.strip_prefix('#').is_some_and(is_hash) {
        let why = if line.is_empty() {
            "its first line is empty"
        } else {
            "it holds a hash, from which none finds the password"
        };
        return Err(Fault::new(what(), why, "write the password itself into its first line"));
    }
    Ok(Password(line.to_owned()))
}

/// [`Access`], its files read.
#[derive(Debug)]
pub(crate) struct Opened {
    /// User and password of `AUTH`; without a user as Redis's default user.
    credentials: Option<(Option<String>, Password)>,
    dialer: Option<Dialer>,
}

/// How to get from nothing to a connection that takes commands.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    /// `HOST:PORT`.
    pub(crate) target: String,
    /// Who one is.
    pub(crate) access: Rc<Opened>,
    /// The database of `SELECT`.
    pub(crate) database: Option<u16>,
}

impl Login {
    /// Connects, authenticates, selects.
    ///
    /// # Errors
    /// Why the server cannot be used.
    pub(crate) async fn connect(&self, timeout: Duration) -> Result<Stream, String> {
        tokio::time::timeout(timeout, self.connect_unbounded())
            .await
            .unwrap_or_else(|_| Err(format!("no answer within {timeout:?}")))
    }

    async fn connect_unbounded(&self) -> Result<Stream, String> {
        let tcp = TcpStream::connect(&self.target).await.map_err(|error| error.to_string())?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        let mut stream = match &self.access.dialer {
            None => Stream::plain(tcp),
            Some(dialer) => dialer.dial(tcp, &self.target).await?,
        };
        let database = self.database.map(|number| number.to_string());
        let mut steps: Vec<Vec<&str>> = Vec::new();
        if let Some((user, Password(password))) = &self.access.credentials {
            steps.push(["AUTH"].into_iter().chain(user.as_deref()).chain([password.as_str()]).collect());
        }
        if let Some(database) = &database {
            steps.push(vec!["SELECT", database]);
        }
        for step in steps {
            ask(&mut stream, &step, |reply| match reply {
                Reply::Simple(_) => Ok(()),
                Reply::Error(error) => Err(format!("{} is refused: {}", step[0], error.escape_ascii())),
                _ => Err(format!("{} is answered with nonsense", step[0])),
            })
            .await??;
        }
        Ok(stream)
    }
}

/// Sends one command on an idle connection and makes something of its reply.
///
/// # Errors
/// Why there is no reply.
pub(crate) async fn ask<T>(
    stream: &mut Stream,
    words: &[&str],
    read: impl FnOnce(&Reply<'_>) -> T,
) -> Result<T, String> {
    let mut out = BytesMut::new();
    resp::command(words, &mut out);
    stream.write_all(&out).await.map_err(|error| Dialer::explain(&error))?;
    let mut input = BytesMut::new();
    loop {
        if let Some((reply, _)) = resp::first_reply(&input)? {
            return Ok(read(&reply));
        }
        if stream.read_buf(&mut input).await.map_err(|error| Dialer::explain(&error))? == 0 {
            return Err("the server closed the connection".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        access: Access,
    }

    fn access(words: &[&str]) -> Result<Access, clap::Error> {
        Cli::try_parse_from([&["test"], words].concat()).map(|cli| cli.access)
    }

    #[test]
    fn flags_that_need_each_other_come_together() {
        for bad in [
            &["--user", "u"][..],
            &["--password", "p", "--password-file", "f"],
            &["--ca", "f"],
            &["--insecure"],
            &["--tls", "--cert", "f"],
            &["--tls", "--key", "f"],
            &["--tls", "--insecure", "--ca", "f"],
        ] {
            assert!(access(bad).is_err(), "{bad:?}");
        }
        assert!(access(&["--tls", "--ca", "f", "--cert", "c", "--key", "k"]).is_ok());
    }

    #[test]
    fn a_password_comes_from_the_first_line_of_a_file_and_is_never_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let open = |text: &str| {
            std::fs::write(&path, text).unwrap();
            access(&["--user", "u", "--password-file", path.to_str().unwrap()]).unwrap().open()
        };
        let opened = open("hush hush\nnot this\n").unwrap();
        assert_eq!(opened.credentials.as_ref().unwrap().1.0, "hush hush");
        assert!(!format!("{opened:?}").contains("hush"));
        assert!(!format!("{:?}", access(&["--password", "hush"])).contains("hush"));
        for bad in ["", "\nlate", &format!("#{}", "0f".repeat(32))] {
            assert_eq!(open(bad).unwrap_err().len(), 1, "{bad}");
        }
        assert!(access(&["--password-file", "/nowhere"]).unwrap().open().is_err());
    }
}
