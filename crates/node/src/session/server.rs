//! Commands of the node: `INFO`, `CONFIG`, `SLOWLOG`, `TIME`, and `MERIDIAN.*`.

use super::connection::REDIS_VERSION;
use super::{Dev, Host, State, Tunables};
use crate::resp::encode::printable;
use crate::resp::glob;
use crate::resp::parse::Args;
use crate::resp::table::{Entry, Own};
use crate::resp::typed::{NOT_AN_INTEGER, Refusal, wrong_arity};
use meridian_protocol::object::integer;
use meridian_protocol::registry::Model;
use std::fmt::Write as _;

impl State {
    pub(super) fn on_time(&mut self, host: &impl Host) {
        let wall = host.now().wall;
        let mut to = self.reply();
        to.array(2);
        to.bulk((wall / 1_000_000).to_string().as_bytes());
        to.bulk((wall % 1_000_000).to_string().as_bytes());
    }

    /// `INFO [section…]`.
    pub(super) fn on_info(&mut self, args: Args<'_>, host: &mut impl Host) {
        let wanted: Vec<_> = args.iter().skip(1).map(<[u8]>::to_ascii_lowercase).collect();
        let all = |name: &Vec<u8>| matches!(name.as_slice(), b"all" | b"everything" | b"default");
        let all = wanted.is_empty() || wanted.iter().any(all);
        let mut text = String::new();
        for (name, section) in sections(host) {
            if all || wanted.iter().any(|wanted| wanted == name.to_ascii_lowercase().as_bytes()) {
                let separator = if text.is_empty() { "" } else { "\r\n" };
                let _ = write!(text, "{separator}# {name}\r\n{}", section.replace('\n', "\r\n"));
            }
        }
        self.reply().verbatim(&text);
    }

    /// `CONFIG GET pattern…`.
    pub(super) fn on_config_get(&mut self, args: Args<'_>, host: &mut impl Host) {
        let mut found: Vec<(String, String)> = Vec::new();
        for pattern in args.iter().skip(2) {
            for (name, value) in settings(host) {
                if glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes())
                    && !found.iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name))
                {
                    // A name is given back as it was asked for.
                    let exact = pattern.eq_ignore_ascii_case(name.as_bytes());
                    let name = if exact { String::from_utf8_lossy(pattern) } else { name.into() };
                    found.push((name.into_owned(), value));
                }
            }
        }
        let mut to = self.reply();
        to.map(found.len());
        for (name, value) in found {
            to.bulk(name.as_bytes());
            to.bulk(value.as_bytes());
        }
    }

    /// `CONFIG SET name value …`: all of them or none.
    pub(super) fn on_config_set(&mut self, args: Args<'_>, host: &mut impl Host) {
        if args.len() % 2 == 1 {
            return self.error(&wrong_arity("config|set"));
        }
        let known = settings(host);
        let mut tunables = host.shared().tunables.clone();
        for index in (2..args.len()).step_by(2) {
            let name = args[index].to_ascii_lowercase();
            let shown = printable(&args[index], 128);
            let Some((_, current)) = known.iter().find(|(known, _)| known.as_bytes() == name) else {
                return self
                    .error(&format!("ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"));
            };
            let twice = (2..index).step_by(2).any(|earlier| args[earlier].eq_ignore_ascii_case(&name));
            let set = if twice {
                Err("duplicate parameter".into())
            } else {
                set_tunable(&mut tunables, &name, &args[index + 1], current)
            };
            if let Err(why) = set {
                return self.error(&format!(
                    "ERR CONFIG SET failed (possibly related to argument '{shown}') - {why}"
                ));
            }
        }
        host.shared().tunables = tunables;
        self.reply().ok();
    }

    /// `SLOWLOG GET [count]`.
    pub(super) fn on_slow_log_get(&mut self, args: Args<'_>, host: &mut impl Host) {
        let count = match (args.len(), args.get(2).map(integer)) {
            (2, _) => Some(10),
            (3, Some(Some(-1))) => Some(usize::MAX),
            (3, Some(Some(count))) => usize::try_from(count).ok(),
            (3, _) => return self.error(&NOT_AN_INTEGER),
            _ => return self.error(&wrong_arity("slowlog|get")),
        };
        let Some(count) = count else {
            return self.error("ERR count should be greater than or equal to -1");
        };
        let log = &host.shared().slow_log;
        let mut to = self.reply();
        to.array(count.min(log.len()));
        for entry in log.iter().take(count) {
            to.array(6);
            to.int(entry.id as i64);
            to.int(entry.at_s as i64);
            to.int(entry.took as i64);
            to.array(entry.args.len());
            for word in &entry.args {
                to.bulk(word);
            }
            to.bulk(entry.peer.as_bytes());
            to.bulk(&entry.name);
        }
    }

    /// `FLUSHDB`, `FLUSHALL`.
    pub(super) fn on_flush(&mut self, entry: &Entry, host: &impl Host) {
        let keyspace = &host.keyspaces()[self.keyspace];
        self.error(&format!(
            "ERR {} is refused: no one step of keyspace {} '{}' empties all of its partitions in all regions; delete the keys that SCAN lists",
            entry.name.to_uppercase(),
            keyspace.number,
            keyspace.name,
        ));
    }

    /// `MERIDIAN.KEYSPACES`.
    pub(super) fn on_keyspaces(&mut self, host: &impl Host) {
        let mut to = self.reply();
        to.array(host.keyspaces().len());
        for keyspace in host.keyspaces() {
            to.map(6);
            to.bulk(b"number");
            to.int(i64::from(keyspace.number));
            for (name, value) in [
                ("name", keyspace.name.as_str()),
                ("model", keyspace.model.name()),
                ("engine", keyspace.engine),
            ] {
                to.bulk(name.as_bytes());
                to.bulk(value.as_bytes());
            }
            to.bulk(b"partitions");
            to.int(i64::from(keyspace.partitions));
            to.bulk(b"session");
            to.bulk(keyspace.session.as_bytes());
        }
    }

    /// `MERIDIAN.USE name`.
    pub(super) fn on_use(&mut self, args: Args<'_>, host: &mut impl Host) {
        let found = host.keyspaces().iter().position(|keyspace| keyspace.name.as_bytes() == &args[1]);
        if let Some(index) = found {
            return self.move_to(index, host);
        }
        let names: Vec<_> = host.keyspaces().iter().map(|keyspace| keyspace.name.as_str()).collect();
        let wanted = printable(&args[1], 128);
        self.error(&format!("ERR no keyspace is called '{wanted}': there are {}", names.join(", ")));
    }

    /// `MERIDIAN.COST`.
    pub(super) fn on_cost(&mut self, host: &impl Host) {
        let model = host.keyspaces()[self.keyspace].model;
        let cost = std::mem::take(&mut self.cost);
        let level = self.level_served(host);
        let mut to = self.reply();
        to.map(5 + usize::from(level.is_some()));
        to.bulk(b"rounds");
        to.int(i64::from(cost.rounds));
        to.bulk(b"waited_us");
        to.int(cost.waited as i64);
        to.bulk(b"reason");
        to.bulk(cost.reason.as_bytes());
        to.bulk(b"staleness_us");
        match model {
            // Nothing older than the newest completed write is ever answered.
            Model::Linearizable | Model::StrictSerializable => to.int(0),
            _ => to.null(),
        }
        to.bulk(b"witness");
        match cost.witness.as_ref().and_then(|witness| serde_json::to_vec(witness).ok()) {
            Some(witness) => to.bulk(&witness),
            None => to.null(),
        }
        if let Some(level) = level {
            to.bulk(b"level");
            to.bulk(level.as_bytes());
        }
        self.cost = cost;
    }

    /// `MERIDIAN.DEV CUT a b | HEAL | PAUSE r | RESUME r`.
    pub(super) fn on_dev(&mut self, own: Own, args: Args<'_>, host: &mut impl Host) {
        let word = |index| args.get(index).map(|word| printable(word, 128)).unwrap_or_default();
        let command = match own {
            Own::DevCut => Dev::Cut(word(2), word(3)),
            Own::DevPause => Dev::Pause(word(2)),
            Own::DevResume => Dev::Resume(word(2)),
            _ => Dev::Heal,
        };
        match host.dev(command) {
            Ok(()) => self.reply().ok(),
            Err(why) => self.error(&format!("ERR {why}")),
        }
    }
}

/// What `CONFIG GET` answers, in this order.
fn settings(host: &mut impl Host) -> Vec<(&'static str, String)> {
    let databases = host.keyspaces().iter().map(|keyspace| keyspace.number + 1).max().unwrap_or(1);
    let durable = if host.facts().durable { "yes" } else { "no" };
    let Tunables {
        maxmemory,
        max_bulk_len,
        slow_log_slower_than,
        slow_log_max_len,
        max_memory_clients,
        max_clients,
        max_clients_ever: _,
        timeout_s,
    } = host.shared().tunables;
    vec![
        ("maxmemory", maxmemory.to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("maxmemory-clients", max_memory_clients.to_string()),
        ("maxclients", max_clients.to_string()),
        ("proto-max-bulk-len", max_bulk_len.to_string()),
        ("slowlog-log-slower-than", slow_log_slower_than.to_string()),
        ("slowlog-max-len", slow_log_max_len.to_string()),
        ("timeout", timeout_s.to_string()),
        ("databases", databases.to_string()),
        ("save", String::new()),
        ("appendonly", durable.to_owned()),
    ]
}

fn set_tunable(tunables: &mut Tunables, name: &[u8], value: &[u8], current: &str) -> Result<(), Refusal> {
    let number = |least: i64, most: i64| {
        let number = integer(value).ok_or("argument couldn't be parsed into an integer")?;
        if (least..=most).contains(&number) {
            Ok(number)
        } else {
            Err(Refusal::from(format!("argument must be between {least} and {most} inclusive")))
        }
    };
    match name {
        b"maxmemory" => tunables.maxmemory = memory(value).ok_or("argument must be a memory value")?,
        b"maxmemory-clients" => {
            tunables.max_memory_clients = memory(value).ok_or("argument must be a memory value")?;
        }
        b"maxclients" => tunables.max_clients = number(1, tunables.max_clients_ever as i64)? as usize,
        b"proto-max-bulk-len" => {
            let bytes = memory(value).ok_or("argument must be a memory value")?;
            let range = Tunables::MAX_BULK_LEN;
            let bytes = usize::try_from(bytes).ok().filter(|bytes| range.contains(bytes));
            tunables.max_bulk_len = bytes.ok_or_else(|| {
                Refusal::from(format!(
                    "argument must be between {} and {} inclusive",
                    range.start(),
                    range.end()
                ))
            })?;
        }
        b"slowlog-log-slower-than" => tunables.slow_log_slower_than = number(-1, i64::MAX)?,
        b"slowlog-max-len" => tunables.slow_log_max_len = number(0, 1_000_000)? as usize,
        b"timeout" => tunables.timeout_s = number(0, i64::from(i32::MAX))? as u64,
        // What is so already may be asked for.
        _ if value.eq_ignore_ascii_case(current.as_bytes()) => {}
        _ => return Err("can't set immutable config".into()),
    }
    Ok(())
}

/// A number of bytes with Redis's units: `k` is 1000, `kb` 1024.
fn memory(text: &[u8]) -> Option<u64> {
    let digits = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = std::str::from_utf8(&text[..digits]).ok()?.parse().ok()?;
    let unit = match text[digits..].to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// The sections of `INFO`, in lines of `name:value`.
fn sections(host: &mut impl Host) -> Vec<(&'static str, String)> {
    let facts = host.facts();
    let used = host.used_memory();
    let status = host.status();
    let now = host.now();
    let shared = host.shared();
    let (counters, denials) = (shared.counters, shared.users.denials);
    let (clients, maxmemory) = (shared.clients.len(), shared.tunables.maxmemory);
    let max_clients = shared.tunables.max_clients;
    let mut keyspace = String::new();
    let mut meridian = format!("node:{}\nregion:{}\n", facts.node, facts.region);
    for (info, keys) in host.keyspaces().iter().zip(facts.keys.iter().chain(std::iter::repeat(&0))) {
        if *keys > 0 {
            let _ = writeln!(keyspace, "db{}:keys={keys},expires=0,avg_ttl=0", info.number);
        }
        let _ = writeln!(
            meridian,
            "keyspace{}:name={},model={},engine={},partitions={},session={}",
            info.number, info.name, info.model, info.engine, info.partitions, info.session
        );
    }
    let blocked = host.shared().clients.list().iter().filter(|info| info.blocked.is_some()).count();
    meridian.push_str(&status.replace("\r\n", "\n"));
    if !meridian.ends_with('\n') {
        meridian.push('\n');
    }
    vec![
        (
            "Server",
            format!(
                "redis_version:{REDIS_VERSION}\nredis_mode:standalone\nmeridian_version:{}\narch_bits:{}\n\
                 process_id:{}\ntcp_port:{}\nserver_time_usec:{}\nuptime_in_seconds:{}\nuptime_in_days:{}\n",
                env!("CARGO_PKG_VERSION"),
                usize::BITS,
                facts.process_id,
                facts.tcp_port,
                now.wall,
                facts.uptime_s,
                facts.uptime_s / 86_400,
            ),
        ),
        (
            "Clients",
            format!("connected_clients:{clients}\nmaxclients:{max_clients}\nblocked_clients:{blocked}\n"),
        ),
        ("Memory", format!("used_memory:{used}\nmaxmemory:{maxmemory}\nmaxmemory_policy:noeviction\n")),
        (
            "Persistence",
            format!("loading:0\naof_enabled:{}\nrdb_bgsave_in_progress:0\n", u8::from(facts.durable)),
        ),
        (
            "Stats",
            format!(
                "total_connections_received:{}\ntotal_commands_processed:{}\ntotal_error_replies:{}\n\
                 rejected_connections:{}\nevicted_clients:{}\n\
                 acl_access_denied_auth:{}\nacl_access_denied_cmd:{}\nacl_access_denied_key:{}\n\
                 acl_access_denied_channel:0\nacl_access_denied_keyspace:{}\n",
                counters.connections,
                counters.commands,
                counters.errors,
                counters.rejected,
                counters.evicted,
                denials.auth,
                denials.command,
                denials.key,
                denials.keyspace
            ),
        ),
        ("Replication", "role:master\nconnected_slaves:0\n".to_owned()),
        ("Keyspace", keyspace),
        ("Meridian", meridian),
    ]
}

#[cfg(test)]
mod tests {
    use super::memory;

    #[test]
    fn memory_has_units() {
        for (text, expected) in [
            ("0", Some(0)),
            ("100mb", Some(100 << 20)),
            ("1GB", Some(1 << 30)),
            ("2k", Some(2_000)),
            ("5b", Some(5)),
            ("", None),
            ("mb", None),
            ("-1", None),
            ("1tb", None),
            ("99999999999gb", None),
        ] {
            assert_eq!(memory(text.as_bytes()), expected, "{text}");
        }
    }
}
