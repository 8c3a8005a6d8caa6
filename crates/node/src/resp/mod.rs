//! RESP, the Redis protocol: bytes to commands, commands to what they mean, answers to bytes. No sockets.
//!
//! [`parse`] finds the words of a command in a buffer, [`table`] knows every command, [`typed`] turns words
//! into the commands of [`meridian_protocol::object`], [`categories`] what they are to access control, and [`encode`]
//! writes answers in RESP2 or RESP3.

pub mod categories;
pub mod encode;
pub mod glob;
pub mod parse;
pub mod table;
pub mod typed;
