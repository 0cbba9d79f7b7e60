//! The planner: decides every swath, without I/O and without a clock of its own.
