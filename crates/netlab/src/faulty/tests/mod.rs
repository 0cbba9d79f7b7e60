//! The servers through raw sockets and curl, behaviour by behaviour.

mod client;
mod honest;
