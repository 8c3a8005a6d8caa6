//! Redis and PostgreSQL servers. Where the system has none, tests that want one fail: `tests/setup.sh` installs them.

use crate::harness::{Process, ports};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A Redis server in memory.
pub(crate) struct Redis {
    pub(crate) port: u16,
    _directory: TempDir,
    _process: Process,
}

impl Redis {
    /// Starts one with these flags beside its port, and waits until it is ready.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let (port, directory) = (ports(1), TempDir::new().expect("a directory for the server's files"));
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--save", "", "--dir"]).arg(directory.path()).args(flags);
        let mut process = Process::spawn(command);
        process.wait_said("Ready to accept connections");
        Self { port, _directory: directory, _process: process }
    }
}

/// A PostgreSQL server.
pub(crate) struct Postgres {
    pub(crate) port: u16,
    process: Process,
    _directory: TempDir,
}

impl Postgres {
    /// Makes a database with the superuser `test`, who needs no password, and starts its server.
    pub(crate) fn start() -> Self {
        let (port, directory) = (ports(1), TempDir::new().expect("a directory for the server's files"));
        let data = directory.path().join("data");
        let mut initdb = postgres("initdb", directory.path());
        initdb.args(["--username=test", "--auth=trust", "--no-sync", "--locale=C", "--pgdata"]).arg(&data);
        let made = initdb.stdout(Stdio::null()).status();
        assert!(made.is_ok_and(|status| status.success()), "initdb makes a database");
        let mut server = postgres("postgres", directory.path());
        server.arg("-D").arg(&data).args([
            "-p",
            &port.to_string(),
            "-k",
            "",
            "-h",
            "127.0.0.1",
            "-c",
            "fsync=off",
        ]);
        let mut process = Process::spawn(server);
        process.wait_said("database system is ready to accept connections");
        Self { port, process, _directory: directory }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Killed, it would leave memory behind that it shares with its children.
        self.process.signal("INT");
        self.process.wait_end();
    }
}

/// A program of PostgreSQL's, which refuses to run as root.
fn postgres(name: &str, owned: &Path) -> Command {
    let mut command = Command::new(installed(name));
    command.current_dir(owned);
    let of_root =
        std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if of_root {
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = users.lines().find(|line| line.starts_with("postgres:") || line.starts_with("nobody:"));
        let mut numbers = user.expect("a user who is not root").split(':').skip(2).map(str::parse);
        let (Some(Ok(user)), Some(Ok(group))) = (numbers.next(), numbers.next()) else {
            panic!("/etc/passwd gives users numbers")
        };
        std::os::unix::fs::chown(owned, Some(user), Some(group)).expect("root may give files away");
        command.uid(user).gid(group);
    }
    command
}

/// Where a program is: on the path, or where Debian has it.
fn installed(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut places = std::env::split_paths(&path).chain(debian.map(|version| version.path().join("bin")));
    let found = places.find(|place| place.join(name).is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: run tests/setup.sh")).join(name)
}
