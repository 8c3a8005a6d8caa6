//! A Redis server that is its own only master.
//!
//! Its fence is empty, and needs to be no more. Redis carries out one command after the other, answers a command when it was carried out,
//! and every later one sees that: its operations are linearizable, a `MULTI` or a script among them one step. So what a session has seen is
//! before all that begins afterwards, which is all that a fence is asked for.
//!
//! That holds as long as the process lives. After a crash it holds again only with `appendonly yes` and `appendfsync always`, where
//! nobody is answered before the file is written; else a restarted server has forgotten what sessions have seen. It does not hold over a
//! failover: replicas take over without writes that were answered. `WAIT` makes that rarer and is no fence: it waits for what its own
//! connection has written and not for what that has read, and a replica that has not acknowledged may be the one that is promoted. Nor
//! does it hold for reads from replicas, which is why those are refused here.

use crate::service::{Done, Failure, Service};
use ::redis::aio::MultiplexedConnection;
use ::redis::{Value, cmd, from_redis_value};
use meridian_protocol::compose::Role;

/// One session's connection to a Redis server.
#[derive(Debug)]
pub struct RedisPrimary {
    connection: MultiplexedConnection,
}

impl RedisPrimary {
    /// Takes a connection, if it leads to a master.
    ///
    /// # Errors
    /// If it leads to a replica, or to what is no Redis.
    pub async fn new(mut connection: MultiplexedConnection) -> Result<Self, Failure> {
        let role: Vec<Value> = cmd("ROLE").query_async(&mut connection).await?;
        let role: String = role.into_iter().next().map(from_redis_value).transpose()?.unwrap_or_default();
        if role != "master" {
            return Err(format!(
                "the server is a {role}: its reads may miss what others have seen; use the master"
            )
            .into());
        }
        Ok(Self { connection })
    }

    /// Where commands go.
    pub fn connection(&mut self) -> &mut MultiplexedConnection {
        &mut self.connection
    }
}

impl Service for RedisPrimary {
    fn role(&self) -> Role {
        Role::Ordered
    }

    async fn fence(&mut self) -> Done {
        Ok(())
    }
}
