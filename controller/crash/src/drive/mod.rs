//! The simulated drive while it is recorded: it does every command at once and
//! remembers all of them. What a cut would have left is a question for
//! [`crate::state`], asked afterwards.

pub mod awake;
pub mod device;
pub mod recorder;
pub mod service;
