//! Tests of the real thing: `meridian` processes on loopback, asked over sockets, killed and started again.

mod bad_input;
mod bank;
mod check;
mod cli;
mod cluster;
mod compose;
mod contexts;
mod crash;
mod damage;
mod dev;
mod failures;
mod faults;
mod harness;
mod judged;
mod leader;
mod metrics;
mod outside;
mod packaging;
mod proxy;
mod queue;
mod resp;
mod status;
mod tls;
mod users;
