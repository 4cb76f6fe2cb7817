//! The runner and the one binary.

pub mod bench;
pub mod capability;
pub mod context;
pub mod doctor;
pub mod environment;
pub mod error;
pub mod judge;
pub mod progress;
pub mod registry;
pub mod replay;
pub mod run_dir;
pub mod runner;
pub mod scenario_file;
pub mod selftest;
pub mod stack;
pub mod trial;
