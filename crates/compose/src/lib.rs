//! Several services used as if they were one: Meridian keyspaces, and whatever an application uses beside them.
//!
//! Each service keeps its own promise, and together they keep less: who reads two rss keyspaces one after the other, or an rss
//! keyspace and a Redis server, can see them in the opposite order to somebody else. Inside a Meridian cluster the nodes mind that. For
//! services outside of it a [`Session`] does, by the same rules ([`meridian_protocol::compose`], which say what they guarantee and how
//! they depart from the paper): before it begins at one service it runs, all at once, the fences of every other one that is owed one, and
//! enters where that is asked for.
//!
#![cfg_attr(feature = "redis", doc = "```no_run")]
#![cfg_attr(not(feature = "redis"), doc = "```ignore")]
//! use meridian_compose::adapters::{Keyspace, RedisPrimary};
//! use meridian_compose::{Context, Session};
//! use redis::AsyncCommands;
//! use std::time::Duration;
//!
//! # async fn shop(from_caller: &str) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
//! // An answer may take as long as a fence.
//! let patient = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
//! let meridian = redis::Client::open("redis://127.0.0.1:7001")?;
//! let redis = redis::Client::open("redis://127.0.0.1:6379")?;
//!
//! // One session for each request, with connections of its own, and the same names in every process.
//! let mut session = Session::default();
//! let connection = meridian.get_multiplexed_async_connection_with_config(&patient).await?;
//! let orders = session.register("orders", Keyspace::new(connection, 2).await?)?;
//! let connection = redis.get_multiplexed_async_connection().await?;
//! let carts = session.register("carts", RedisPrimary::new(connection).await?)?;
//!
//! // The request comes after all that its sender has seen and done, wherever that was.
//! session.import(&from_caller.parse::<Context>()?).await?;
//!
//! // `start` is the only way to a service: first it does what is owed to the others.
//! let items: Vec<String> = session.start(carts).await?.connection().lrange("cart:7", 0, -1).await?;
//! let _: () = session.start(orders).await?.connection().set("order:12", items.join(",")).await?;
//! let _: () = session.start(carts).await?.connection().del("cart:7").await?;
//!
//! // Whoever gets this with the answer, and passes it on, comes after this request.
//! Ok(session.export().await?.to_string())
//! # }
//! ```
//!
//! [`Service`] is what another kind of service must do. [`adapters`] has three, each with what its fence means and under which conditions:
//! a Meridian keyspace, a Redis server, a PostgreSQL server. Errors that say that a connection is lost end the session: what it had
//! seen there is known to nobody else, so begin another one.
//!
//! An unsaid message (a telephone call, a queue that carries no context) is not known of: [`Session::fence`] before it.

pub mod adapters;
mod context;
mod error;
mod service;
mod session;

pub use context::{Context, LENGTH_MAX, NAME_MAX};
pub use error::Error;
pub use meridian_protocol::compose::Role;
pub use meridian_protocol::planted::Plant;
pub use service::{Done, Failure, Service};
pub use session::{Handle, Session};
