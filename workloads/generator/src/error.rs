//! What can go wrong before, beside and after the workload.

use std::io;

use plugpull_model::ledger::{LedgerError, MAX_LEDGER_LINE_BYTES};
use thiserror::Error;

/// Why the generator could not do its work. A write or a sync of a record that fails is none of
/// these: it is a line of the ledger. Each message says what, where, and the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GeneratorError {
    /// The workload of the plan cannot be written.
    #[error("the planned workload, {place}: {reason}; make the plan again from its scenario")]
    Workload {
        /// Which part.
        place: String,
        /// What is wrong with it.
        reason: String,
    },

    /// The acknowledging call does not exist on this stack.
    #[error("`{acknowledge}` does not exist on {stack}; use {instead}")]
    Acknowledge {
        /// The call, as scenarios spell it.
        acknowledge: &'static str,
        /// What the records are written to.
        stack: &'static str,
        /// What exists there.
        instead: &'static str,
    },

    /// The file system opens no file with `O_DIRECT`.
    #[error(
        "`{object}`: this file system takes no O_DIRECT (EINVAL); set `direct = false` in the workload"
    )]
    DirectUnsupported {
        /// The file.
        object: String,
    },

    /// The device is smaller than the records' area.
    #[error(
        "the records end at byte {end_bytes} and the device has {device_bytes}; give the stack a larger `device_bytes`"
    )]
    DeviceTooSmall {
        /// End of the last record.
        end_bytes: u64,
        /// The device.
        device_bytes: u64,
    },

    /// A call on a file or its directory failed, outside the workload itself.
    #[error("{doing} `{object}`: {source}; {}", remedy(.source))]
    File {
        /// What was done.
        doing: &'static str,
        /// To what.
        object: String,
        /// The system's words.
        source: io::Error,
    },

    /// A ledger line could not be kept, so the workload was stopped.
    #[error("keeping the ledger: {source}; {}", ledger_remedy(.source))]
    Ledger {
        /// The system's words, or the contradiction.
        source: io::Error,
    },

    /// A record could not be encoded.
    #[error("stream {stream}: {source}")]
    Record {
        /// The writer's stream.
        stream: u32,
        /// What is wrong with its key.
        source: plugpull_record::RecordError,
    },

    /// A thread could not be started.
    #[error(
        "starting the writer of stream {stream}: {source}; raise the limit of processes (ulimit -u), or plan fewer writers"
    )]
    Thread {
        /// The writer's stream.
        stream: u32,
        /// The system's words.
        source: io::Error,
    },

    /// A writer crashed: a bug of the rig or of one of its seams.
    #[error(
        "the writer of stream {stream} crashed; the trial is void, please report this as a bug"
    )]
    Crashed {
        /// The writer's stream.
        stream: u32,
    },
}

impl GeneratorError {
    pub(crate) fn file(doing: &'static str, object: &str, errno: nix::errno::Errno) -> Self {
        Self::File {
            doing,
            object: object.to_owned(),
            source: errno.into(),
        }
    }

    pub(crate) fn workload(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Workload {
            place: place.into(),
            reason: reason.into(),
        }
    }

    /// The error number, where the system gave one.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::DirectUnsupported { .. } => Some(libc::EINVAL),
            Self::File { source, .. } | Self::Ledger { source } | Self::Thread { source, .. } => {
                source.raw_os_error()
            }
            _ => None,
        }
    }
}

fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => "give the stack a larger `device_bytes`",
        Some(libc::EROFS) => "the file system is read-only: see the kernel log for why",
        Some(libc::ENOENT) => "create the files with prepare_files before the workload",
        Some(libc::EEXIST) => "start on a file system fresh from mkfs",
        Some(libc::ELOOP | libc::EISDIR | libc::ENXIO) => {
            "something else has that name: start on a file system fresh from mkfs"
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files (ulimit -n)",
        Some(libc::EACCES | libc::EPERM) => "run as the user who owns the mount",
        _ => "see the kernel log for what the file system and its device said",
    }
}

fn ledger_remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => "free space where the run directory lies",
        Some(_) => "check where the run directory lies",
        None => "the trial is void, please report this as a bug",
    }
}

/// Why bytes are not a ledger. Such a ledger is void: it makes its trial inconclusive.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadLedgerError {
    /// The bytes could not be read.
    #[error("ledger line {line}: {source}; check the medium that holds the run directory")]
    Io {
        /// The line, from 1.
        line: u64,
        /// The system's words.
        source: io::Error,
    },
    /// A line is longer than any that is written.
    #[error(
        "ledger line {line}: longer than {MAX_LEDGER_LINE_BYTES} bytes; this is not a ledger, or it is damaged: run the trial again"
    )]
    TooLong {
        /// The line, from 1.
        line: u64,
    },
    /// A whole line is not one of a ledger.
    #[error(
        "ledger line {line}: {reason}; this is not a ledger, or it is damaged: run the trial again"
    )]
    NotALine {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A line contradicts an earlier one.
    #[error("{0}; run the trial again")]
    Contradiction(#[from] LedgerError),
}
