//! The servers through raw sockets, behaviour by behaviour.

mod answers;
mod client;
mod honest;
mod wire;
