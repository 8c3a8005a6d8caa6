//! Services that are there already.

#[cfg(feature = "redis")]
mod meridian;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;

#[cfg(feature = "redis")]
pub use self::meridian::Keyspace;
#[cfg(feature = "postgres")]
pub use self::postgres::PostgresPrimary;
#[cfg(feature = "redis")]
pub use self::redis::RedisPrimary;
