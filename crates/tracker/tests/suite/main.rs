//! A whole tracker on the loopback interface, asked with raw requests by HTTP and UDP.

mod http;
mod running;
mod support;
mod udp;
