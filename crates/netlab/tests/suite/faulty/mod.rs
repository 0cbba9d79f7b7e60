//! The servers through raw sockets and curl, behaviour by behaviour.

mod answers;
mod client;
mod curl;
mod honest;
mod wire;
