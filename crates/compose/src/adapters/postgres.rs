//! A PostgreSQL server that is its own only primary, used in serializable transactions.
//!
//! Its fence is empty. Serializable transactions of one server are in one order, and in one that agrees with real time. Why that,
//! too: against real time the order could only go if dependencies led from a transaction back to one that had ended before it began. Take
//! in that circle the transaction that commits first. What leads to it is an anti-dependency of one that ran beside it (every other
//! kind, and real time, say that somebody committed earlier still), and for the same reason what leads to that is another one. Two in a
//! row of which the last committed first is what serializable snapshot isolation aborts, of whatever the rest of the circle is made.
//!
//! It holds among serializable transactions only, so all who use the data must ask for them; this connection does by default. A
//! transaction's reads count once it has committed, also if it only reads. With `synchronous_commit = off` a crash may forget what was seen,
//! and so may a failover to a standby that is replicated to without waiting. Standbys' own reads are refused here.

use crate::service::{Done, Failure, Service};
use meridian_protocol::compose::Role;
use tokio_postgres::Client;

/// One session's connection to a PostgreSQL server.
#[derive(Debug)]
pub struct PostgresPrimary {
    client: Client,
}

impl PostgresPrimary {
    /// Takes a connection, if it leads to a primary, and makes its transactions serializable.
    ///
    /// # Errors
    /// If it leads to a standby.
    pub async fn new(client: Client) -> Result<Self, Failure> {
        let standby: bool = client.query_one_scalar("SELECT pg_is_in_recovery()", &[]).await?;
        if standby {
            return Err(
                "the server is a standby: its reads may miss what others have seen; use the primary".into()
            );
        }
        client
            .batch_execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            .await?;
        Ok(Self { client })
    }

    /// Where statements and transactions go.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Service for PostgresPrimary {
    fn role(&self) -> Role {
        Role::Ordered
    }

    async fn fence(&mut self) -> Done {
        Ok(())
    }
}
