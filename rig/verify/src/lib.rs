//! The oracle: pure and deterministic.
