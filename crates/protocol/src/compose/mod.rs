//! libRSS: several services used as if they were one (Helt, Burke, Levy, Lloyd: *Regular Sequential Serializability and
//! Regular Sequential Consistency*, SOSP 2021, extended version, §4 and Appendix C.4).
//!
//! # Guarantee
//! For sessions that ask [`Session::before`] ahead of every operation, and begin it once what that names has ended:
//! all operations at services that take part are in one order that keeps causality, whichever services it goes through; and
//! with the entry rule it is the order of real time that RSS and RSC promise, between operations at different services too.
//!
//! # Assumptions
//! What a service's [`Role`] says. A fence that has ended at a service puts all that the session has seen there before all
//! that begins there later, for everybody. Messages between sessions that are not told of ([`Session::import`]) count only
//! if the sender has fenced every service before.
//!
//! # From the paper to the code
//! | source | here | departs |
//! |---|---|---|
//! | Figure 3, `RegisterService`, `UnregisterService` | [`Services::register`], [`Services::unregister`] | refused while a session owes a fence |
//! | Figure 3, `StartTransaction`: fence of the last service | [`Session::before`] | of *every* other service that is owed one: after a message, the last name alone is not enough |
//! | Theorem C.14 | [`Before::enters`] | shows each service's own real time only; operations at different services need the entry rule |
//! | §4.2, context propagation | [`Session::import`] | contexts are united, not replaced |
//!
//! A failed operation may have shown something, so its fence is owed from its beginning. A fence that fails is owed on.

#[cfg(test)]
mod tests;

use crate::planted::{Plant, Planted};
use std::collections::BTreeMap;

/// What a service demands of the sessions that use it beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Real time orders all of its operations: linearizable, strictly serializable. Demands nothing.
    Ordered,
    /// Whoever leaves it owes a fence (Gryff-RSC: what was read is settled).
    Settles,
    /// Whoever leaves it owes a fence, and whoever comes from another service enters (Spanner-RSS).
    Enters,
    /// Its operations are in no one order, so that no fence could make it a part of one: causal, process-ordered. What
    /// other services are owed is paid on the way in; it is owed nothing.
    Apart,
}

impl Role {
    /// Whether leaving it owes a fence.
    pub fn owes(self) -> bool {
        matches!(self, Self::Settles | Self::Enters)
    }
}

/// The services that are used together, by names of the caller's choice.
#[derive(Clone, Debug)]
pub struct Services<S> {
    roles: BTreeMap<S, Role>,
    plant: Plant,
}

impl<S> Default for Services<S> {
    fn default() -> Self {
        Self { roles: BTreeMap::new(), plant: Plant::default() }
    }
}

/// Why a service cannot be registered or unregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is one of that name.
    Known,
    /// There is none of that name.
    Unknown,
    /// A session still owes its fence.
    Owed,
}

impl<S: Ord + Copy> Services<S> {
    /// None yet, with a bug to run with.
    pub fn new(plant: Plant) -> Self {
        Self { roles: BTreeMap::new(), plant }
    }

    /// Adds a service.
    ///
    /// # Errors
    /// If there is one of that name: two behind one name would share what is owed.
    pub fn register(&mut self, service: S, role: Role) -> Result<(), Refused> {
        if self.roles.contains_key(&service) {
            return Err(Refused::Known);
        }
        self.roles.insert(service, role);
        Ok(())
    }

    /// Takes a service away, of which `sessions`, all that there are, know.
    ///
    /// # Errors
    /// If there is none of that name, or a session owes its fence.
    pub fn unregister<'s>(
        &mut self,
        service: S,
        sessions: impl IntoIterator<Item = &'s Session<S>>,
    ) -> Result<(), Refused>
    where
        S: 's,
    {
        let role = self.roles.get(&service).ok_or(Refused::Unknown)?;
        let owed = |session: &Session<S>| session.uses.get(&service).is_some_and(|used| !used.fenced);
        if role.owes() && sessions.into_iter().any(owed) {
            return Err(Refused::Owed);
        }
        self.roles.remove(&service);
        Ok(())
    }

    /// Of a service that is gone nothing is owed, as it went; that it was used still counts.
    fn role(&self, service: S) -> Role {
        self.roles.get(&service).copied().unwrap_or(Role::Ordered)
    }
}

/// What must end before an operation begins. All of it may be done at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before<S> {
    /// Services to be fenced, with what to tell [`Session::on_fenced`].
    pub fences: Vec<(S, Fence)>,
    /// Whether the session enters the operation's own service ([`crate::machine::Request::Enter`]).
    pub enters: bool,
}

impl<S> Before<S> {
    /// Whether there is nothing.
    pub fn is_nothing(&self) -> bool {
        self.fences.is_empty() && !self.enters
    }
}

/// Which uses of a service a fence covers: all before it began; by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence(u64);

/// What one session must remember of the services that it has used.
#[derive(Clone, Debug)]
pub struct Session<S> {
    uses: BTreeMap<S, Use>,
    /// The service of the last operation that took part, if nothing of another service has come since.
    current: Option<S>,
    /// Grows with every use.
    count: u64,
}

impl<S> Default for Session<S> {
    fn default() -> Self {
        Self { uses: BTreeMap::new(), current: None, count: 0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Use {
    /// The count at the last one.
    at: u64,
    /// Whether a fence has covered it.
    fenced: bool,
}

impl<S: Ord + Copy> Session<S> {
    /// What must end before an operation at `service` begins.
    pub fn before(&self, services: &Services<S>, service: S) -> Before<S> {
        let (plant, role) = (services.plant, services.role(service));
        let owed =
            |(other, used): &(S, Use)| *other != service && !used.fenced && services.role(*other).owes();
        let mut fences: Vec<_> = self.uses.iter().map(|(other, used)| (*other, *used)).filter(owed).collect();
        if plant.has(Planted::LastServiceOnly) {
            let last = self.uses.values().map(|used| used.at).max();
            fences.retain(|(_, used)| Some(used.at) == last);
        }
        if plant.has(Planted::NoAutoFence) {
            fences.clear();
        }
        let takes_part = |other: &S| *other != service && services.role(*other) != Role::Apart;
        let without = [Planted::NoEntryRule, Planted::NoAutoFence, Planted::LastServiceOnly];
        let enters = role == Role::Enters
            && self.current != Some(service)
            && self.uses.keys().any(takes_part)
            && !without.into_iter().any(|bug| plant.has(bug));
        Before { fences: fences.into_iter().map(|(other, used)| (other, Fence(used.at))).collect(), enters }
    }

    /// An operation at `service` begins: from now on its fence is owed, however the operation ends.
    pub fn on_begin(&mut self, services: &Services<S>, service: S) {
        self.count += 1;
        self.uses.insert(service, Use { at: self.count, fenced: false });
        if services.role(service) != Role::Apart {
            self.current = Some(service);
        }
    }

    /// A fence has ended well.
    pub fn on_fenced(&mut self, service: S, Fence(at): Fence) {
        // If the service has been used since, that is not covered.
        if let Some(used) = self.uses.get_mut(&service).filter(|used| used.at == at) {
            used.fenced = true;
        }
    }

    /// All services used since their last fence, of whichever role.
    pub fn unfenced(&self) -> Vec<(S, Fence)> {
        let open = self.uses.iter().filter(|(_, used)| !used.fenced);
        open.map(|(service, used)| (*service, Fence(used.at))).collect()
    }

    /// All services that this session, or one that it goes on after, has used: the longest unused first, and whether their fence is
    /// owed.
    pub fn used(&self, services: &Services<S>) -> Vec<(S, bool)> {
        let mut all: Vec<_> = self.uses.iter().collect();
        all.sort_by_key(|(_, used)| used.at);
        all.into_iter()
            .map(|(service, used)| (*service, !used.fenced && services.role(*service).owes()))
            .collect()
    }

    /// The session goes on after another one, too, which has used these services and owes fences of some.
    pub fn import(&mut self, services: &Services<S>, others: impl IntoIterator<Item = (S, bool)>) {
        for (service, owed) in others {
            self.count += 1;
            let fenced = !owed && self.uses.get(&service).is_none_or(|used| used.fenced);
            self.uses.insert(service, Use { at: self.count, fenced });
            if services.role(service) != Role::Apart && self.current != Some(service) {
                self.current = None;
            }
        }
    }
}
