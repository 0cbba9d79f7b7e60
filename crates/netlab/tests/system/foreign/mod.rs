//! With programs of others.

mod curl;
mod web_servers;
