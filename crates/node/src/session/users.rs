//! Who the client is and what it may do: `AUTH`, `ACL`, and the check before each command of a restricted user.

use super::crossing::operates;
use super::prefix::Levels;
use super::{Host, State};
use crate::acl::{DEFAULT_USER, Denied};
use crate::resp::categories::CATEGORIES;
use crate::resp::encode::printable;
use crate::resp::parse::Args;
use crate::resp::table::{self, Entry, NO_AUTH};
use crate::resp::typed::{NOT_AN_INTEGER, Refusal, SYNTAX, int};
use std::rc::Rc;

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

impl State {
    /// Whether the client has shown who it is, or need not.
    pub(super) fn is_known(&self, host: &mut impl Host) -> bool {
        self.user.is_unrestricted() || !host.shared().users.is_nobody(&self.user)
    }

    /// Why a user who may not do everything may not do this, if so.
    pub(super) fn permit(
        &mut self,
        entry: &Entry,
        args: Args<'_>,
        host: &mut impl Host,
    ) -> Result<(), String> {
        let users = &mut host.shared().users;
        if users.is_nobody(&self.user) {
            // The default user may have been opened meanwhile.
            self.user = users.newcomer();
            if users.is_nobody(&self.user) {
                return if entry.is(NO_AUTH) {
                    Ok(())
                } else {
                    Err("NOAUTH Authentication required.".to_owned())
                };
            }
        }
        let keyspace = operates(entry, args).then_some(self.keyspace);
        let users = &mut host.shared().users;
        let checked = self.user.rights().check(entry, args, keyspace);
        let Err(denied) = checked else { return Ok(()) };
        let denials = &mut users.denials;
        match denied {
            Denied::Command => {
                denials.command += 1;
                Err(self.command_denied(entry))
            }
            Denied::Key => {
                denials.key += 1;
                Err("NOPERM No permissions to access a key".to_owned())
            }
            Denied::Keyspace => {
                denials.keyspace += 1;
                Err(self.keyspace_denied(self.keyspace, host))
            }
        }
    }

    /// Counts a command that is about to be carried out against its user's rate; says why it is not, if it comes too soon. To say
    /// who one is and to leave is always free.
    pub(super) fn comes_too_soon(&self, entry: &Entry, host: &impl Host) -> Option<String> {
        if self.user.is_unrestricted() || entry.is(NO_AUTH) {
            return None;
        }
        let rate = self.user.exceeds_rate(host.now().monotonic)?;
        let user = printable(self.user.name(), 128);
        Some(format!(
            "TRYAGAIN user {user} may send {rate} commands a second, and has: wait a little, then send it again"
        ))
    }

    fn command_denied(&self, entry: &Entry) -> String {
        let name = printable(self.user.name(), 128);
        format!("NOPERM User {name} has no permissions to run the '{}' command", entry.name)
    }

    fn keyspace_denied(&self, keyspace: usize, host: &impl Host) -> String {
        let (user, keyspace) = (printable(self.user.name(), 128), &host.keyspaces()[keyspace]);
        format!(
            "NOPERM User {user} has no permissions to use keyspace {} '{}'",
            keyspace.number, keyspace.name
        )
    }

    /// Whether a command that was queued may still be carried out.
    pub(super) fn still_permits(&self, entry: &Entry, args: Args<'_>) -> Result<(), Refusal> {
        if self.user.is_unrestricted() {
            return Ok(());
        }
        self.user.rights().check(entry, args, Some(self.keyspace)).map_err(|denied| {
            let reason = match denied {
                Denied::Command => "no permission to execute the command or subcommand",
                Denied::Key => "no permission to touch the specified keys",
                Denied::Keyspace => "no permission to use the keyspace",
            };
            Refusal::from(format!(
                "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. \
                 This command is no longer allowed for the following reason: {reason}"
            ))
        })
    }

    /// Whether a command that has waited may go on.
    pub(super) fn may_still(&self, args: Args<'_>, keyspace: usize) -> Result<(), String> {
        let Some(entry) = table::find(&args[0]).filter(|_| !self.user.is_unrestricted()) else {
            return Ok(());
        };
        self.user.rights().check(entry, args, Some(keyspace)).map_err(|_| {
            let user = printable(self.user.name(), 128);
            format!(
                "NOPERM what user {user} may do has changed while {} waited: nothing was taken",
                entry.name
            )
        })
    }

    /// Works in another keyspace from now on, if the user may.
    pub(super) fn move_to(&mut self, keyspace: usize, host: &mut impl Host) {
        if !self.user.is_unrestricted() && !self.user.rights().may_use(keyspace) {
            host.shared().users.denials.keyspace += 1;
            let refusal = self.keyspace_denied(keyspace, host);
            return self.error(&refusal);
        }
        self.use_keyspace(keyspace, host);
        self.reply().ok();
    }

    /// Takes up where the user's connections begin and what they ask for.
    pub(super) fn begin_as_user(&mut self, host: &mut impl Host) {
        let (start, levels) = {
            let rights = self.user.rights();
            (rights.start(), rights.levels())
        };
        if let Some(keyspace) = start {
            self.use_keyspace(keyspace, host);
        }
        if let Some((reads, writes)) = levels {
            self.levels = Levels { reads, writes };
        }
        let name = if self.user.name().is_empty() { DEFAULT_USER.into() } else { self.user.name().clone() };
        self.update(host, |info| info.user = name);
    }

    /// Becomes the user with that name and password.
    pub(super) fn show(&mut self, name: &[u8], password: &[u8], host: &mut impl Host) -> Result<(), Refusal> {
        if self.open.is_some() {
            return Err("ERR AUTH is not served inside MERIDIAN.BEGIN: send it before, or after MERIDIAN.COMMIT or ABORT".into());
        }
        let shared = host.shared();
        let Some(user) = shared.users.authenticate(name, password) else {
            let count = shared.users.denials.auth;
            if count.is_power_of_two() {
                let peer = shared.clients.get(self.id).map(|info| info.peer.as_str()).unwrap_or_default();
                // A name that is not known may be a password.
                let known = shared.users.get(name).map(|user| printable(user.name(), 64));
                let whose =
                    known.map_or("a user that is not there".to_owned(), |name| format!("user '{name}'"));
                tracing::warn!(
                    "refused the client at {peer} as {whose}: wrong password, or the user is off ({count} so far)"
                );
            }
            return Err(WRONG_PASSWORD.into());
        };
        if !Rc::ptr_eq(&user, &self.user) {
            // Where the former one was begun says nothing of the new one; what was selected stays, as in Redis.
            if self.user.rights().start() == Some(self.keyspace) {
                self.use_keyspace(0, host);
            }
            self.levels = Levels::default();
            self.user = user;
            self.begin_as_user(host);
        }
        Ok(())
    }

    /// `AUTH [user] password`.
    pub(super) fn on_auth(&mut self, args: Args<'_>, host: &mut impl Host) {
        let (name, password) = match args.len() {
            2 => (DEFAULT_USER, &args[1]),
            3 => (&args[1], &args[2]),
            _ => return self.error(&SYNTAX),
        };
        if args.len() == 2 && host.shared().users.default_user().rights().needs_no_password() {
            return self.error(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            );
        }
        match self.show(name, password, host) {
            Ok(()) => self.reply().ok(),
            Err(refusal) => self.error(&refusal),
        }
    }

    /// `ACL SETUSER name [rule…]`.
    pub(super) fn on_acl_set(&mut self, args: Args<'_>, host: &mut impl Host) {
        let rules: Vec<&[u8]> = args.iter().skip(3).collect();
        match host.shared().users.set(&args[2], &rules) {
            Ok(()) => self.reply().ok(),
            Err(why) => self.error(&format!("ERR {why}")),
        }
    }

    /// `ACL DELUSER name…`.
    pub(super) fn on_acl_delete(&mut self, args: Args<'_>, host: &mut impl Host) {
        if args.iter().skip(2).any(|name| name == DEFAULT_USER) {
            return self.error("ERR The 'default' user cannot be removed");
        }
        let users = &mut host.shared().users;
        let deleted = args.iter().skip(2).filter(|name| users.delete(name)).count();
        self.reply().int(deleted as i64);
        // Its own answer still leaves.
        self.closing |= self.user.is_gone();
    }

    /// `ACL GETUSER name`.
    pub(super) fn on_acl_get(&mut self, args: Args<'_>, host: &mut impl Host) {
        let users = &host.shared().users;
        let Some(user) = users.get(&args[2]) else { return self.reply().null() };
        let rights = user.rights();
        let own = rights.own_rules(users.keyspaces());
        let mut to = self.reply();
        // What Redis does not have is only shown where it says something.
        to.map(6 + usize::from(!own.is_empty()));
        to.bulk(b"flags");
        let flags = rights.flags();
        to.set(flags.len());
        for flag in flags {
            to.bulk(flag.as_bytes());
        }
        to.bulk(b"passwords");
        let hashes = rights.hashes();
        to.array(hashes.len());
        for hash in hashes {
            to.bulk(hash.as_bytes());
        }
        for (name, value) in [
            ("commands", rights.commands_text().into_bytes()),
            ("keys", rights.keys_text()),
            ("channels", rights.channels_text()),
        ] {
            to.bulk(name.as_bytes());
            to.bulk(&value);
        }
        to.bulk(b"selectors");
        to.array(0);
        if !own.is_empty() {
            to.bulk(b"keyspaces");
            to.bulk(own.join(" ").as_bytes());
        }
    }

    /// `ACL LIST`.
    pub(super) fn on_acl_list(&mut self, host: &mut impl Host) {
        let users = &host.shared().users;
        let mut to = self.reply();
        to.array(users.iter().len());
        for user in users.iter() {
            to.bulk(&user.rights().line(user.name(), users.keyspaces()));
        }
    }

    /// `ACL USERS`.
    pub(super) fn on_acl_users(&mut self, host: &mut impl Host) {
        let users = host.shared().users.iter();
        let mut to = self.reply();
        to.array(users.len());
        for user in users {
            to.bulk(user.name());
        }
    }

    /// `ACL CAT [category]`.
    pub(super) fn on_acl_cat(&mut self, args: Args<'_>) {
        let Some(wanted) = args.get(2) else {
            let mut to = self.reply();
            to.array(CATEGORIES.len());
            for category in CATEGORIES {
                to.simple(category);
            }
            return;
        };
        if args.len() > 3 {
            return self.error(&many_words("CAT"));
        }
        let lower = wanted.to_ascii_lowercase();
        let Some(category) = CATEGORIES.into_iter().find(|category| category.as_bytes() == lower) else {
            return self.error(&format!("ERR Unknown category '{}'", printable(wanted, 128)));
        };
        let family = |entry: &'static Entry| std::iter::once(entry).chain(entry.subcommands);
        let entries: Vec<_> =
            table::all().iter().flat_map(family).filter(|entry| entry.is_of(category)).collect();
        let mut to = self.reply();
        to.array(entries.len());
        for entry in entries {
            to.bulk(entry.name.as_bytes());
        }
    }

    /// `ACL GENPASS [bits]`.
    pub(super) fn on_acl_generate(&mut self, args: Args<'_>) {
        let bits = match (args.len(), args.get(2).map(int)) {
            (2, _) => 256,
            (3, Some(Ok(bits))) => bits,
            (3, _) => return self.error(&NOT_AN_INTEGER),
            _ => return self.error(&many_words("GENPASS")),
        };
        if !(1..=4_096).contains(&bits) {
            return self.error(
                "ERR ACL GENPASS argument must be the number of bits for the output password, \
                 a positive number up to 4096",
            );
        }
        // Four bits a digit.
        let digits = (bits as usize).div_ceil(4);
        let mut random = vec![0; digits.div_ceil(2)];
        if let Err(error) = getrandom::fill(&mut random) {
            return self.error(&format!("ERR there is no source of random numbers: {error}"));
        }
        self.reply().bulk(&crate::acl::hexadecimal(&random).as_bytes()[..digits]);
    }
}

fn many_words(subcommand: &str) -> String {
    format!("ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try ACL HELP.")
}
