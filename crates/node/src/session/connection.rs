//! Commands of the connection: who it is, what it speaks, which keyspace it uses.

use super::prefix::Levels;
use super::{ClientInfo, Host, State};
use crate::resp::encode::{Protocol, printable};
use crate::resp::parse::Args;
use crate::resp::table::{Entry, Own};
use crate::resp::typed::{NOT_AN_INTEGER, Refusal, SYNTAX, int, wrong_arity};
use bytes::Bytes;
use meridian_protocol::clock::Micros;
use std::fmt::Write as _;

/// The version of Redis whose answers are given.
pub(super) const REDIS_VERSION: &str = "7.2.4";

impl State {
    /// Answers a command of the session, or leaves it running.
    pub(super) fn on_own(&mut self, entry: &'static Entry, own: Own, args: Args<'_>, host: &mut impl Host) {
        match own {
            Own::Abort => self.on_abort(host),
            Own::AclCat => self.on_acl_cat(args),
            Own::AclDelUser => self.on_acl_delete(args, host),
            Own::AclGenPass => self.on_acl_generate(args),
            Own::AclGetUser => self.on_acl_get(args, host),
            Own::AclList => self.on_acl_list(host),
            Own::AclSetUser => self.on_acl_set(args, host),
            Own::AclUsers => self.on_acl_users(host),
            Own::AclWhoAmI => {
                let name = self.user.name().clone();
                self.reply().bulk(&name);
            }
            Own::Auth => self.on_auth(args, host),
            Own::Begin => self.on_begin(args, host),
            Own::ClientGetName => self.on_client_get_name(host),
            Own::ClientId => {
                let serial = self.id.serial as i64;
                self.reply().int(serial);
            }
            Own::ClientInfo | Own::ClientList => self.on_client_list(own, args, host),
            Own::ClientSetInfo => self.on_client_set_info(args, host),
            Own::ClientSetName => self.on_client_set_name(args, host),
            Own::ClientUnblock => self.on_client_unblock(args, host),
            Own::Commit => self.on_commit(host),
            Own::Command => self.on_command_info(&[], true),
            Own::CommandCount
            | Own::CommandDocs
            | Own::CommandGetKeys
            | Own::CommandInfo
            | Own::CommandList => self.on_command_command(own, args),
            Own::ConfigGet => self.on_config_get(args, host),
            Own::ConfigSet => self.on_config_set(args, host),
            // Without a sub-command its arity is wrong, and with one it is not asked for.
            Own::Container => self.error(&wrong_arity(entry.name)),
            Own::ContextGet => self.on_context_get(host),
            Own::ContextReset => self.on_context_reset(host),
            Own::ContextMerge | Own::ContextSet => {
                self.on_context_take(own == Own::ContextSet, args, host);
            }
            Own::DbSize => self.on_dbsize(host),
            Own::Discard => self.on_discard(host),
            Own::Echo => self.reply().bulk(&args[1]),
            Own::Enter => self.on_enter(host),
            Own::Exec => self.on_exec(entry, host),
            Own::Fence => self.on_fence(host),
            Own::Flush => self.on_flush(entry, host),
            Own::Hello => self.on_hello(args, host),
            Own::Help => self.on_help(args),
            Own::Info => self.on_info(args, host),
            Own::Keys => self.on_keys(args, host),
            Own::Keyspaces => self.on_keyspaces(host),
            Own::LastCost => self.on_cost(host),
            Own::Level => self.on_level(args, host),
            Own::Multi => self.on_multi(host),
            Own::DevCut | Own::DevHeal | Own::DevPause | Own::DevResume => self.on_dev(own, args, host),
            Own::Ping => self.on_ping(args),
            Own::Quit => {
                self.reply().ok();
                self.closing = true;
            }
            Own::Reset => self.on_reset(host),
            Own::Scan => self.on_scan(args, host),
            Own::Select => self.on_select(args, host),
            Own::SlowLogGet => self.on_slow_log_get(args, host),
            Own::SlowLogLen => {
                let count = host.shared().slow_log.len();
                self.reply().int(count as i64);
            }
            Own::SlowLogReset => {
                host.shared().slow_log.clear();
                self.reply().ok();
            }
            Own::Snapshot => self.on_snapshot(args, host),
            Own::Status => {
                let status = host.status();
                self.reply().verbatim(&status);
            }
            Own::Time => self.on_time(host),
            Own::Unwatch => self.on_unwatch(host),
            Own::Use => self.on_use(args, host),
            Own::Watch => self.on_watch(args, host),
        }
    }

    fn on_ping(&mut self, args: Args<'_>) {
        match args.len() {
            1 => self.reply().simple("PONG"),
            2 => self.reply().bulk(&args[1]),
            _ => self.error(&wrong_arity("ping")),
        }
    }

    /// `SELECT number`.
    fn on_select(&mut self, args: Args<'_>, host: &mut impl Host) {
        let Ok(number) = int(&args[1]) else { return self.error(&NOT_AN_INTEGER) };
        let found = host.keyspaces().iter().position(|keyspace| i64::from(keyspace.number) == number);
        match found {
            Some(index) => self.move_to(index, host),
            None => self.error("ERR DB index is out of range"),
        }
    }

    /// Works in another keyspace from now on.
    pub(super) fn use_keyspace(&mut self, index: usize, host: &mut impl Host) {
        self.keyspace = index;
        let number = host.keyspaces()[index].number;
        self.update(host, |info| info.keyspace = number);
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`.
    fn on_hello(&mut self, args: Args<'_>, host: &mut impl Host) {
        let hello = match hello_options(args) {
            Ok(hello) => hello,
            Err(refusal) => return self.error(&refusal),
        };
        let shown = hello.auth.map_or(Ok(()), |(name, password)| self.show(name, password, host));
        if let Err(refusal) = shown {
            return self.error(&refusal);
        }
        if !self.is_known(host) {
            return self.error(HELLO_UNKNOWN);
        }
        if let Some(protocol) = hello.protocol {
            self.protocol = protocol;
        }
        let protocol = if self.protocol == Protocol::Resp3 { 3 } else { 2 };
        self.update(host, |info| {
            info.protocol = protocol;
            if let Some(name) = hello.name {
                info.name = name;
            }
        });
        let id = self.id.serial as i64;
        let mut to = self.reply();
        to.map(7);
        for (name, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
            to.bulk(name.as_bytes());
            to.bulk(value.as_bytes());
        }
        to.bulk(b"proto");
        to.int(i64::from(protocol));
        to.bulk(b"id");
        to.int(id);
        for (name, value) in [("mode", "standalone"), ("role", "master")] {
            to.bulk(name.as_bytes());
            to.bulk(value.as_bytes());
        }
        to.bulk(b"modules");
        to.array(0);
    }

    /// `RESET`.
    fn on_reset(&mut self, host: &mut impl Host) {
        self.multi = None;
        self.watched.clear();
        self.leave_open(host);
        self.forget(host);
        self.levels = Levels::default();
        self.protocol = Protocol::Resp2;
        self.use_keyspace(0, host);
        self.update(host, |info| {
            info.name = Bytes::new();
            info.queued = -1;
            info.watching = false;
            info.protocol = 2;
        });
        self.user = host.shared().users.newcomer();
        self.begin_as_user(host);
        self.reply().simple("RESET");
    }

    fn on_client_get_name(&mut self, host: &mut impl Host) {
        let name = host.shared().clients.get_mut(self.id).map(|info| info.name.clone()).unwrap_or_default();
        if name.is_empty() { self.reply().null() } else { self.reply().bulk(&name) }
    }

    fn on_client_set_name(&mut self, args: Args<'_>, host: &mut impl Host) {
        match client_name(&args[2]) {
            Ok(name) => {
                self.update(host, |info| info.name = name);
                self.reply().ok();
            }
            Err(refusal) => self.error(&refusal),
        }
    }

    fn on_client_set_info(&mut self, args: Args<'_>, host: &mut impl Host) {
        let option = args[2].to_ascii_lowercase();
        let value = args.bytes(3);
        if !matches!(option.as_slice(), b"lib-name" | b"lib-ver") {
            return self.error(&format!("ERR Unrecognized option '{}'", printable(&args[2], 128)));
        }
        if !is_graphic(&value) {
            let option = printable(&option, 128);
            return self
                .error(&format!("ERR {option} cannot contain spaces, newlines or special characters."));
        }
        self.update(host, |info| {
            let slot = if option == b"lib-name" { &mut info.library } else { &mut info.library_version };
            *slot = value;
        });
        self.reply().ok();
    }

    /// `CLIENT INFO`, `CLIENT LIST [TYPE type | ID id…]`.
    fn on_client_list(&mut self, own: Own, args: Args<'_>, host: &mut impl Host) {
        let own_id = self.id.serial as i64;
        let ids = if own == Own::ClientInfo { Ok(Some(vec![own_id])) } else { listed_clients(args) };
        let ids = match ids {
            Ok(ids) => ids,
            Err(refusal) => return self.error(&refusal),
        };
        let now = host.now().monotonic;
        let mut text = String::new();
        for info in host.shared().clients.list() {
            if ids.as_ref().is_none_or(|ids| ids.contains(&(info.id.serial as i64))) {
                describe(info, now, &mut text);
            }
        }
        self.reply().verbatim(&text);
    }
}

const HELLO_UNKNOWN: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                             <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                             version at the same time";

struct Hello<'a> {
    protocol: Option<Protocol>,
    name: Option<Bytes>,
    /// A user's name and password.
    auth: Option<(&'a [u8], &'a [u8])>,
}

fn hello_options(args: Args<'_>) -> Result<Hello<'_>, Refusal> {
    let mut hello = Hello { protocol: None, name: None, auth: None };
    let Some(version) = args.get(1) else { return Ok(hello) };
    let version = int(version).map_err(|_| "ERR Protocol version is not an integer or out of range")?;
    hello.protocol = Some(match version {
        2 => Protocol::Resp2,
        3 => Protocol::Resp3,
        _ => return Err("NOPROTO unsupported protocol version".into()),
    });
    let mut index = 2;
    while let Some(option) = args.get(index) {
        let more = args.len() - index - 1;
        if option.eq_ignore_ascii_case(b"auth") && more >= 2 {
            hello.auth = args.get(index + 1).zip(args.get(index + 2));
            index += 3;
        } else if option.eq_ignore_ascii_case(b"setname") && more >= 1 {
            hello.name = Some(client_name(&args[index + 1])?);
            index += 2;
        } else {
            return Err(format!("ERR Syntax error in HELLO option '{}'", printable(option, 128)).into());
        }
    }
    Ok(hello)
}

fn client_name(name: &[u8]) -> Result<Bytes, Refusal> {
    if is_graphic(name) {
        Ok(Bytes::copy_from_slice(name))
    } else {
        Err("ERR Client names cannot contain spaces, newlines or special characters.".into())
    }
}

/// Whether a name can stand in `CLIENT LIST`.
fn is_graphic(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_graphic)
}

/// Whose lines are asked for; `None` is everyone's.
fn listed_clients(args: Args<'_>) -> Result<Option<Vec<i64>>, Refusal> {
    match (args.len(), args.get(2).map(<[u8]>::to_ascii_lowercase).as_deref()) {
        (2, _) => Ok(None),
        (4, Some(b"type")) => match args[3].to_ascii_lowercase().as_slice() {
            b"normal" => Ok(None),
            // There are no such clients.
            b"master" | b"replica" | b"slave" | b"pubsub" => Ok(Some(Vec::new())),
            _ => Err(format!("ERR Unknown client type '{}'", printable(&args[3], 128)).into()),
        },
        (4.., Some(b"id")) => {
            let ids = args.iter().skip(3).map(|id| int(id).map_err(|_| "ERR Invalid client ID".into()));
            ids.collect::<Result<_, _>>().map(Some)
        }
        _ => Err(SYNTAX),
    }
}

/// A client's line of `CLIENT LIST`.
fn describe(info: &ClientInfo, now: Micros, text: &mut String) {
    let seconds = |since: Micros| now.saturating_sub(since) / 1_000_000;
    let flags = match (info.queued >= 0, info.blocked.is_some()) {
        (true, _) => "x",
        (_, true) => "b",
        _ => "N",
    };
    let watch = i32::from(info.watching);
    // Writing to a string has no error.
    let _ = writeln!(
        text,
        "id={} addr={} laddr={} name={} age={} idle={} flags={flags} db={} sub=0 psub=0 ssub=0 multi={} \
         watch={watch} cmd={} user={} resp={} lib-name={} lib-ver={}",
        info.id.serial,
        info.peer,
        info.local,
        String::from_utf8_lossy(&info.name),
        seconds(info.connected),
        seconds(info.active),
        info.keyspace,
        info.queued,
        info.command,
        String::from_utf8_lossy(&info.user),
        info.protocol,
        String::from_utf8_lossy(&info.library),
        String::from_utf8_lossy(&info.library_version),
    );
}
