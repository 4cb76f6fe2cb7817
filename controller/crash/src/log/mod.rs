//! Write logs: dm-log-writes version 1, and the side-car that holds what that
//! format lacks. Byte tables are in `controller/crash/LOG.md`.

pub mod dialect;
pub mod entries;
pub mod format;
pub mod import;
pub mod index;
pub mod reader;
pub mod table;
pub mod writer;

use std::path::PathBuf;

/// A log that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The operating system's error.
    #[error("{what} {}: {source}; {remedy}", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The bytes are not what the format says.
    #[error("{}: entry {entry} at byte {offset}: {reason}; the file is damaged or cut off, record the trial again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The entry, from 0.
        entry: u64,
        /// Where it begins in the file.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// A file that is no log, or one that cannot be read here.
    #[error("{}: byte {offset}: {reason}; {remedy}", path.display())]
    NoLog {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        reason: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// An entry that cannot be.
    #[error("{}: entry {entry} at byte {offset}: {reason}; {remedy}", path.display())]
    Entry {
        /// The file.
        path: PathBuf,
        /// The entry, from 0.
        entry: u64,
        /// Where it begins in the file.
        offset: u64,
        /// What is wrong.
        reason: String,
        /// What to do about it.
        remedy: &'static str,
    },
}
