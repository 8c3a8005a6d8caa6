//! Who may do what: users, as Redis's access lists have them. No sockets, no sessions.
//!
//! A user is a list of rules in Redis's words (`rules`); what they amount to is [`rights`]. Sessions hold their user and look at
//! one flag of it before each command: whether everything is allowed. What `ACL SETUSER` changes holds for connections that
//! stand, as they share the user.

pub mod rights;
mod rules;

pub use rights::{Denied, Rights};
pub(crate) use rules::hexadecimal;

use bytes::Bytes;
use meridian_protocol::clock::Micros;
use meridian_protocol::machine::Level;
use sha2::{Digest, Sha256};
use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

/// The user that every connection is at first, if that needs no password.
pub const DEFAULT_USER: &[u8] = b"default";

/// How many rules one command can have; each is compared with those that the user has.
const RULES_MAX: usize = 4_096;

/// The SHA-256 of a password: nothing else of it is kept.
pub type PasswordHash = [u8; 32];

/// The hash of a password.
pub fn hash_password(password: &[u8]) -> PasswordHash {
    Sha256::digest(password).into()
}

/// A user as connections share it.
pub struct User {
    name: Bytes,
    /// Whether all commands on all keys of all keyspaces are allowed, so that nothing else need be looked at.
    unrestricted: Cell<bool>,
    /// It was deleted: its connections end.
    gone: Cell<bool>,
    /// Of a user whose rate is limited: when, in monotonic nanoseconds, all commands so far would have come, had they come evenly.
    paced: Cell<u64>,
    rights: RefCell<Rights>,
    /// How often these have changed.
    changes: Cell<u64>,
}

impl fmt::Debug for User {
    /// Without passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

impl User {
    fn new(name: Bytes, rights: Rights) -> Self {
        let unrestricted = Cell::new(rights.is_unrestricted());
        Self {
            name,
            unrestricted,
            gone: Cell::new(false),
            paced: Cell::new(0),
            rights: RefCell::new(rights),
            changes: Cell::new(0),
        }
    }

    /// Its name.
    pub fn name(&self) -> &Bytes {
        &self.name
    }

    /// Whether everything is allowed.
    pub fn is_unrestricted(&self) -> bool {
        self.unrestricted.get()
    }

    /// How often its rights were changed.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// Whether it was deleted.
    pub fn is_gone(&self) -> bool {
        self.gone.get()
    }

    /// What is allowed.
    pub fn rights(&self) -> Ref<'_, Rights> {
        self.rights.borrow()
    }

    /// Whether one more command comes too soon, at that time in monotonic microseconds; gives the rate that it exceeds. A second's
    /// worth may come at once.
    pub fn exceeds_rate(&self, now: Micros) -> Option<u32> {
        const SECOND: u64 = 1_000_000_000;
        let rate = self.rights().rate()?;
        let now = now.saturating_mul(1_000);
        let next = self.paced.get().max(now) + SECOND / u64::from(rate);
        if next > now + SECOND {
            return Some(rate);
        }
        self.paced.set(next);
        None
    }

    fn set(&self, rights: Rights) {
        self.unrestricted.set(rights.is_unrestricted() && !self.is_gone());
        *self.rights.borrow_mut() = rights;
        self.changes.set(self.changes.get() + 1);
    }
}

/// How often something was refused, for `INFO`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Denials {
    /// A wrong password, or a user that is not there or off.
    pub auth: u64,
    /// A command.
    pub command: u64,
    /// A key.
    pub key: u64,
    /// A keyspace.
    pub keyspace: u64,
}

/// All users of a node.
#[derive(Debug)]
pub struct Users {
    /// The keyspaces' numbers and names, in their order.
    keyspaces: Vec<(u16, String)>,
    by_name: BTreeMap<Bytes, Rc<User>>,
    default: Rc<User>,
    /// What a connection is that has not said who it is: nothing is allowed to it.
    nobody: Rc<User>,
    /// What was refused so far.
    pub denials: Denials,
    /// Somebody was deleted whose connections are still to be ended.
    departed: bool,
}

impl Default for Users {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Users {
    /// Those of a node with these keyspaces, in the order of their numbers: only the default user, to whom all is allowed.
    pub fn new(keyspaces: Vec<(u16, String)>) -> Self {
        let user = |name, rights| Rc::new(User::new(Bytes::from_static(name), rights));
        let default = user(DEFAULT_USER, Rights::everything());
        let by_name = BTreeMap::from([(default.name.clone(), default.clone())]);
        let nobody = user(b"", Rights::default());
        Self { keyspaces, by_name, default, nobody, denials: Denials::default(), departed: false }
    }

    /// Adds the users of a configuration, each by its name and rules. The default user begins with nothing, as in Redis.
    ///
    /// # Errors
    /// Whose rules are wrong, by place, and why.
    pub fn configure<'a>(
        &mut self,
        users: impl IntoIterator<Item = (&'a str, &'a [String])>,
    ) -> Result<(), (usize, String)> {
        for (place, (name, rules)) in users.into_iter().enumerate() {
            let rules = rules.iter().map(String::as_bytes);
            let rules: Vec<&[u8]> = std::iter::once(&b"reset"[..]).chain(rules).collect();
            self.set(name.as_bytes(), &rules).map_err(|why| (place, why))?;
        }
        Ok(())
    }

    /// `ACL SETUSER`: applies rules to a user, which is made if it is not there; all of them or none.
    ///
    /// # Errors
    /// What is wrong, in Redis's words.
    pub fn set(&mut self, name: &[u8], rules: &[&[u8]]) -> Result<(), String> {
        if name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
            return Err("Usernames can't contain spaces or null characters".to_owned());
        }
        if name.is_empty() || name.iter().any(u8::is_ascii_control) {
            return Err("A user needs a name, without control characters".to_owned());
        }
        if rules.len() > RULES_MAX {
            return Err(format!(
                "At most {RULES_MAX} rules can be given at once, and here are {}",
                rules.len()
            ));
        }
        let known = self.by_name.get(name);
        let mut rights = known.map(|user| user.rights().clone()).unwrap_or_default();
        for rule in rules {
            rights.apply(rule, &self.keyspaces)?;
        }
        if let Some(user) = known {
            user.set(rights);
        } else {
            let name = Bytes::copy_from_slice(name);
            self.by_name.insert(name.clone(), Rc::new(User::new(name, rights)));
        }
        Ok(())
    }

    /// `ACL DELUSER`: whether there was such a user. Its connections are to be ended: see [`Users::take_departed`].
    pub fn delete(&mut self, name: &[u8]) -> bool {
        let Some(user) = self.by_name.remove(name) else { return false };
        user.gone.set(true);
        user.unrestricted.set(false);
        self.departed = true;
        true
    }

    /// Whether somebody was deleted since the last call.
    pub fn take_departed(&mut self) -> bool {
        std::mem::take(&mut self.departed)
    }

    /// The user with that name and password, unless it is off. Takes the same time whether there is one.
    pub fn authenticate(&mut self, name: &[u8], password: &[u8]) -> Option<Rc<User>> {
        let hash = hash_password(password);
        let user = self.by_name.get(name).filter(|user| user.rights().accepts(&hash)).cloned();
        self.denials.auth += u64::from(user.is_none());
        user
    }

    /// Who a new connection is: the default user, or nobody if that one needs a password or is off.
    pub fn newcomer(&self) -> Rc<User> {
        let open = self.default.rights().is_open();
        if open { self.default.clone() } else { self.nobody.clone() }
    }

    /// Whether a connection has not said who it is.
    pub fn is_nobody(&self, user: &Rc<User>) -> bool {
        Rc::ptr_eq(user, &self.nobody)
    }

    /// The default user.
    pub fn default_user(&self) -> &Rc<User> {
        &self.default
    }

    /// The user of that name.
    pub fn get(&self, name: &[u8]) -> Option<&Rc<User>> {
        self.by_name.get(name)
    }

    /// All users, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Rc<User>> {
        self.by_name.values()
    }

    /// The keyspaces' numbers and names.
    pub fn keyspaces(&self) -> &[(u16, String)] {
        &self.keyspaces
    }
}

/// What a user's operations ask for at first: the levels of reads and of writes.
pub type Levels = (Level, Level);

#[cfg(test)]
mod tests;
