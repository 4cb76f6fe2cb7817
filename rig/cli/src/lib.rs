//! The runner and the one binary.
