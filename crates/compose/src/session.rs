//! Sessions: the rules of [`meridian_protocol::compose`], with services that take time.

use crate::context::{Context, LENGTH_MAX, Part, is_name, is_plain};
use crate::error::Error;
use crate::service::{AnyService, Done, Service};
use futures_util::future::{BoxFuture, join_all};
use meridian_protocol::compose::{self, Fence, Refused, Services};
use meridian_protocol::planted::Plant;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// One user of several services, who does one thing after the other.
///
/// The services that are registered are the session's own connections, and [`Self::start`] is the only way to them: no operation begins
/// before what it owes to other services is done. Dropping a future of the session half done loses nothing but time: a fence that is not
/// known to have ended is owed on.
#[derive(Default)]
pub struct Session {
    rules: Services<u64>,
    composed: compose::Session<u64>,
    members: BTreeMap<u64, Member>,
}

struct Member {
    name: String,
    service: Box<dyn AnyService>,
}

/// A service as its session knows it.
pub struct Handle<S> {
    id: u64,
    service: PhantomData<fn() -> S>,
}

impl<S> Clone for Handle<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Handle<S> {}

impl<S> fmt::Debug for Handle<S> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Handle({})", self.id)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.members.values().map(|member| &member.name).collect();
        to.debug_struct("Session")
            .field("services", &names)
            .field("composed", &self.composed)
            .finish_non_exhaustive()
    }
}

/// An identity that is never used twice, so that a handle fits one service of one session.
fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A step of one service, begun among others.
enum Step {
    Fence(Fence),
    Enter,
    Import,
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::Fence(_) => "fence",
            Self::Enter => "entry",
            Self::Import => "import",
        }
    }
}

impl Session {
    /// A session without services, with a bug to run with.
    pub fn with_plant(plant: Plant) -> Self {
        Self { rules: Services::new(plant), ..Self::default() }
    }

    /// Adds a service. Sessions that tell each other their contexts call each service by the same name.
    ///
    /// # Errors
    /// [`Error::Known`] and [`Error::BadName`].
    pub fn register<S: Service>(&mut self, name: &str, service: S) -> Result<Handle<S>, Error> {
        if !is_name(name) {
            return Err(Error::BadName { name: name.to_owned() });
        }
        if self.id_of(name).is_some() {
            return Err(Error::Known { name: name.to_owned() });
        }
        let id = fresh();
        let known = self.rules.register(id, service.role());
        assert!(known.is_ok(), "identities are never used twice");
        self.members.insert(id, Member { name: name.to_owned(), service: Box::new(service) });
        Ok(Handle { id, service: PhantomData })
    }

    /// Takes a service away, with its connection.
    ///
    /// # Errors
    /// [`Error::Owed`] while the session owes its fence, and [`Error::Unknown`].
    pub fn unregister<S: Service>(&mut self, at: Handle<S>) -> Result<(), Error> {
        match self.rules.unregister(at.id, [&self.composed]) {
            Ok(()) => {
                self.members.remove(&at.id);
                Ok(())
            }
            Err(Refused::Owed) => Err(Error::Owed { name: self.members[&at.id].name.clone() }),
            Err(Refused::Unknown | Refused::Known) => Err(Error::Unknown),
        }
    }

    /// Begins at a service, for one operation or several in a row there: first runs, all at once, the fences of every other service
    /// that is still owed one, and the entry if the service wants one.
    ///
    /// # Errors
    /// [`Error::Step`] if one of these fails, and [`Error::Unknown`]. Nothing was begun then.
    pub async fn start<S: Service>(&mut self, at: Handle<S>) -> Result<&mut S, Error> {
        if !self.members.contains_key(&at.id) {
            return Err(Error::Unknown);
        }
        let before = self.composed.before(&self.rules, at.id);
        let mut steps: BTreeMap<u64, Step> =
            before.fences.into_iter().map(|(id, fence)| (id, Step::Fence(fence))).collect();
        if before.enters {
            steps.insert(at.id, Step::Enter);
        }
        self.run(steps, &BTreeMap::new()).await?;
        self.composed.on_begin(&self.rules, at.id);
        let member = self.members.get_mut(&at.id).ok_or(Error::Unknown)?;
        member.service.as_any().downcast_mut().ok_or(Error::Unknown)
    }

    /// Fences every service used since its last fence: ahead of a message to somebody who gets no context. They then see all that this
    /// session has seen, each service for itself.
    ///
    /// # Errors
    /// [`Error::Step`].
    pub async fn fence(&mut self) -> Result<(), Error> {
        let steps = self.composed.unfenced().into_iter().map(|(id, fence)| (id, Step::Fence(fence)));
        let known = steps.filter(|(id, _)| self.members.contains_key(id)).collect();
        self.run(known, &BTreeMap::new()).await
    }

    /// What another session, in whichever process, must be told to go on after this one.
    ///
    /// # Errors
    /// [`Error::Step`].
    pub async fn export(&mut self) -> Result<Context, Error> {
        let used = self.composed.used(&self.rules);
        let mut tellers = Vec::new();
        for (id, member) in &mut self.members {
            if let Some(&(_, owed)) = used.iter().find(|(other, _)| other == id) {
                let Member { name, service } = member;
                tellers.push(async move { (name, owed, service.export().await) });
            }
        }
        let mut parts = Vec::new();
        for (name, owed, told) in join_all(tellers).await {
            let told = told.and_then(|told| {
                if is_plain(&told) { Ok(told) } else { Err("it tells what no header can carry".into()) }
            });
            let name = name.clone();
            match told {
                Ok(told) => parts.push(Part { name, owed, told }),
                Err(source) => return Err(Error::Step { name, step: "export", source }),
            }
        }
        let gone = used.iter().any(|(id, _)| !self.members.contains_key(id));
        let context = Context { parts, gone };
        if context.to_string().len() > LENGTH_MAX {
            return Err(Error::BadContext(
                "what the services used tell is too long: use fewer in one session",
            ));
        }
        Ok(context)
    }

    /// Goes on after another session, too, and owes what it owes.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it names a service that is not registered here: nothing was taken over then. [`Error::Step`] if a service
    /// does not take over what it is told; what it was told of is owed all the same.
    pub async fn import(&mut self, context: &Context) -> Result<(), Error> {
        let mut used = Vec::new();
        let (mut steps, mut tellings) = (BTreeMap::new(), BTreeMap::new());
        for Part { name, owed, told } in &context.parts {
            let id = self.id_of(name).ok_or_else(|| Error::Foreign { name: name.clone() })?;
            used.push((id, *owed));
            if !told.is_empty() {
                steps.insert(id, Step::Import);
                tellings.insert(id, told.as_str());
            }
        }
        if context.gone {
            used.push((fresh(), false));
        }
        // Ahead of what is told, so that it is owed also if that fails, or is given up.
        self.composed.import(&self.rules, used);
        self.run(steps, &tellings).await
    }

    fn id_of(&self, name: &str) -> Option<u64> {
        self.members.iter().find(|(_, member)| member.name == name).map(|(id, _)| *id)
    }

    /// Runs a step of each of these services, all at once.
    async fn run(&mut self, steps: BTreeMap<u64, Step>, told: &BTreeMap<u64, &str>) -> Result<(), Error> {
        let mut running = Vec::new();
        for (id, member) in &mut self.members {
            let Some(step) = steps.get(id) else { continue };
            let Member { name, service } = member;
            let doing: BoxFuture<'_, Done> = match step {
                Step::Fence(_) => service.fence(),
                Step::Enter => service.enter(),
                Step::Import => service.import(told.get(id).copied().unwrap_or_default()),
            };
            running.push(async move { (*id, name, step, doing.await) });
        }
        let mut failed = None;
        for (id, name, step, done) in join_all(running).await {
            match (done, step) {
                (Ok(()), Step::Fence(fence)) => self.composed.on_fenced(id, *fence),
                (Ok(()), _) => {}
                (Err(source), _) => {
                    let error = Error::Step { name: name.clone(), step: step.name(), source };
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
