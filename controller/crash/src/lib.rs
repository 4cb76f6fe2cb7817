//! Crashes in software: the drive model and its servers, write logs, the
//! enumeration of crash states, and crash images.
//!
//! The crash model itself is described, rule by rule and with the reason for
//! each, in `controller/crash/FAULTS.md`; the files in `controller/crash/LOG.md`.

pub mod drive;
pub mod kernel;
pub mod log;
pub mod serve;
pub mod state;
