//! What a service must do to be used beside others.

use futures_util::future::BoxFuture;
use meridian_protocol::compose::Role;
use std::any::Any;
use std::future::Future;

/// Why a service could not do something, in its own words.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a step of a service comes to.
pub type Done = Result<(), Failure>;

/// One session's connection to a service. [`crate::Session`] calls all of this; an application calls nothing of it.
///
/// A connection that is lost takes along what the session has seen by it: from then on every step must fail, and not quietly go on by
/// another connection, whose fence would cover nothing.
pub trait Service: Send + 'static {
    /// What the rules demand of sessions that use it.
    fn role(&self) -> Role;

    /// Ends when all that this connection has seen is before all that begins at the service afterwards, whoever begins it. A service of
    /// [`Role::Ordered`] has nothing to do.
    fn fence(&mut self) -> impl Future<Output = Done> + Send;

    /// The session comes from another service: what it does next here is after all that has ended anywhere before this was called.
    /// Only services of [`Role::Enters`] are asked. One that cannot do it is [`Role::Settles`], and keeps real time with others as far
    /// as its fence does.
    fn enter(&mut self) -> impl Future<Output = Done> + Send {
        std::future::ready(Err("a service of this role must say how it is entered".into()))
    }

    /// What another session must be told to go on after this connection: letters, digits, `-` and `_`. Nothing, where real time or
    /// the fence that the other will owe orders what both do.
    fn export(&mut self) -> impl Future<Output = Result<String, Failure>> + Send {
        std::future::ready(Ok(String::new()))
    }

    /// This connection goes on after another one, too, that has [exported](Self::export) this. Not called with nothing.
    fn import(&mut self, told: &str) -> impl Future<Output = Done> + Send {
        std::future::ready(Err(format!("it takes nothing over, and was told {} bytes", told.len()).into()))
    }
}

/// A [`Service`] of any type.
pub(crate) trait AnyService: Send {
    fn fence(&mut self) -> BoxFuture<'_, Done>;
    fn enter(&mut self) -> BoxFuture<'_, Done>;
    fn export(&mut self) -> BoxFuture<'_, Result<String, Failure>>;
    fn import<'s>(&'s mut self, told: &'s str) -> BoxFuture<'s, Done>;
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<S: Service> AnyService for S {
    fn fence(&mut self) -> BoxFuture<'_, Done> {
        Box::pin(Service::fence(self))
    }

    fn enter(&mut self) -> BoxFuture<'_, Done> {
        Box::pin(Service::enter(self))
    }

    fn export(&mut self) -> BoxFuture<'_, Result<String, Failure>> {
        Box::pin(Service::export(self))
    }

    fn import<'s>(&'s mut self, told: &'s str) -> BoxFuture<'s, Done> {
        Box::pin(Service::import(self, told))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
