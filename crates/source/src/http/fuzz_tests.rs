//! Property tests of the state machine; see below.
