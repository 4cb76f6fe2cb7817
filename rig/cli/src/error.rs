//! Why the rig could not do its job. Never a finding.

use std::io;
use std::path::{Path, PathBuf};

use plugpull_crash::log::LogError;
use plugpull_crash::serve::process::ProcessError;
use plugpull_generator::{GeneratorError, ReadLedgerError};
use plugpull_model::verdict::Exit;
use plugpull_reports::ReportError;

use crate::scenario_file::ScenarioError;

/// Every way the runner fails; each message says what, where and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The scenario or the command line.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A word of the command line that parses and makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A file or folder of the run directory.
    #[error("{what} {}: {source}; {remedy}", path.display())]
    File {
        /// What was being done.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A run directory that is not one.
    #[error("{}: {reason}; {remedy}", path.display())]
    RunDirectory {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Something this machine lacks for the plan.
    #[error("{cell} needs `{capability}`, which is missing: {reason}; {remedy}")]
    Missing {
        /// The first cell that needs it.
        cell: String,
        /// The capability's name.
        capability: &'static str,
        /// What the probe said.
        reason: String,
        /// What to do about it.
        remedy: String,
    },
    /// A tool that could not be started or failed.
    #[error("{tool}: {reason}; {remedy}")]
    Tool {
        /// The command.
        tool: String,
        /// What it said.
        reason: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Kernel calls on the way to a stack.
    #[error("{what}: {source}; see `plugpull doctor`")]
    Kernel {
        /// The call, and on what.
        what: String,
        /// The error.
        source: io::Error,
    },
    /// The drive process.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The write log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The workload.
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    /// A ledger that cannot be read back.
    #[error("{}: {source}", path.display())]
    Ledger {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ReadLedgerError,
    },
    /// Events that cannot be read back.
    #[error("{}: {source}", path.display())]
    Events {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ReportError,
    },
    /// A recording that cannot be read back.
    #[error(transparent)]
    Recording(LogError),
    /// A run that failed after it had begun to find things.
    #[error(
        "{source}; what was found is kept, go on with: plugpull run --resume {}",
        shell_word(out)
    )]
    Begun {
        /// Why.
        source: Box<RunError>,
        /// The run directory.
        out: PathBuf,
    },
    /// Ctrl-C or SIGTERM.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// The exit code of this failure.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            RunError::Scenario(error) => error.exit(),
            RunError::Usage(_)
            | RunError::RunDirectory { .. }
            | RunError::Recording(_)
            | RunError::Ledger { .. }
            | RunError::Events { .. } => Exit::Usage,
            RunError::Begun { source, .. } => source.exit(),
            RunError::Missing { .. } => Exit::Refused,
            RunError::Interrupted => Exit::Inconclusive,
            _ => Exit::Failed,
        }
    }
}

/// A path as one word of a shell's command line.
#[must_use]
pub fn shell_word(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:=@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Wraps an error of a file of a run directory that is read back: one that is
/// not there makes the folder no run directory.
pub(crate) fn read_error(
    path: impl Into<PathBuf>,
    remedy: &'static str,
) -> impl FnOnce(io::Error) -> RunError {
    let path = path.into();
    move |source| {
        if source.kind() == io::ErrorKind::NotFound {
            return RunError::RunDirectory {
                path,
                reason: source.to_string(),
                remedy,
            };
        }
        file_error("cannot read", path, remedy)(source)
    }
}

/// Wraps an error of a file with what was done to it.
pub(crate) fn file_error(
    what: &'static str,
    path: impl Into<PathBuf>,
    remedy: &'static str,
) -> impl FnOnce(io::Error) -> RunError {
    let path = path.into();
    move |source| RunError::File {
        what,
        path,
        source,
        remedy,
    }
}

/// Wraps an error of a kernel call.
pub(crate) fn kernel_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> RunError {
    let what = what.into();
    move |source| RunError::Kernel { what, source }
}
