//! A keyspace of a Meridian cluster.
//!
//! Its model says what it demands, and the node does all of it: `MERIDIAN.FENCE` is the fence of what this connection has seen,
//! `MERIDIAN.ENTER` the entry, and `MERIDIAN.CONTEXT` tells and takes over. Between keyspaces of one cluster none of this is needed if
//! the session uses them over one connection, as the node fences them itself; registered one by one here, they are fenced from here.

use crate::service::{Done, Failure, Service};
use ::redis::aio::MultiplexedConnection;
use ::redis::cmd;
use meridian_protocol::compose::Role;
use meridian_protocol::registry::EngineName;
use std::collections::BTreeMap;

/// One session's connection to a keyspace.
#[derive(Debug)]
pub struct Keyspace {
    connection: MultiplexedConnection,
    role: Role,
}

impl Keyspace {
    /// Selects the keyspace of that number on a connection of the session's own. Answers must be waited for longer than a fence
    /// takes, which in an rss keyspace is 300 ms by default.
    ///
    /// # Errors
    /// If the server is no Meridian, or has no such keyspace.
    pub async fn new(mut connection: MultiplexedConnection, number: u16) -> Result<Self, Failure> {
        let keyspaces: Vec<BTreeMap<String, String>> =
            cmd("MERIDIAN.KEYSPACES").query_async(&mut connection).await?;
        let (wanted, field) = (number.to_string(), |name: &str| name.to_owned());
        let keyspace = keyspaces.iter().find(|keyspace| keyspace.get(&field("number")) == Some(&wanted));
        let keyspace = keyspace.ok_or_else(|| format!("this cluster has no keyspace {number}"))?;
        let engine = keyspace.get("engine").map_or("", String::as_str);
        let engine = EngineName::of_engine(engine).map_err(|_| {
            format!("keyspace {number} is kept by engine '{engine}', which this library does not know")
        })?;
        cmd("SELECT").arg(number).exec_async(&mut connection).await?;
        Ok(Self { connection, role: engine.role() })
    }

    /// Where commands go. What goes over a clone of it elsewhere goes past the session; so does another keyspace that is selected.
    pub fn connection(&mut self) -> &mut MultiplexedConnection {
        &mut self.connection
    }
}

impl Service for Keyspace {
    fn role(&self) -> Role {
        self.role
    }

    async fn fence(&mut self) -> Done {
        Ok(cmd("MERIDIAN.FENCE").exec_async(&mut self.connection).await?)
    }

    async fn enter(&mut self) -> Done {
        Ok(cmd("MERIDIAN.ENTER").exec_async(&mut self.connection).await?)
    }

    async fn export(&mut self) -> Result<String, Failure> {
        if self.role == Role::Ordered {
            return Ok(String::new());
        }
        Ok(cmd("MERIDIAN.CONTEXT").arg("GET").query_async(&mut self.connection).await?)
    }

    async fn import(&mut self, told: &str) -> Done {
        Ok(cmd("MERIDIAN.CONTEXT").arg("MERGE").arg(told).exec_async(&mut self.connection).await?)
    }
}
