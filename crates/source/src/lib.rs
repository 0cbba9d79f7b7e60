//! The network inbound: lanes over HTTP, control requests, credentials.
