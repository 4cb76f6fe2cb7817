//! What can go wrong with an outlet.

use std::io;
use thiserror::Error;

/// Why an outlet could not do what was asked. Each message says what, where, and the remedy.
#[derive(Debug, Error)]
pub enum PowerError {
    /// The configuration of an outlet makes no sense; nothing was run.
    #[error("outlet `{outlet}`: {problem}; {remedy}")]
    Config {
        /// The outlet.
        outlet: String,
        /// What is wrong, with the name of the key.
        problem: String,
        /// What to write instead.
        remedy: &'static str,
    },
    /// A configured command did not start.
    #[error(
        "outlet `{outlet}`: the `{role}` command `{program}` did not start: {source}; check that it \
         is installed, executable and on PATH"
    )]
    NotStarted {
        /// The outlet.
        outlet: String,
        /// `off`, `on` or `status`.
        role: &'static str,
        /// The program, without its arguments: these may hold secrets.
        program: String,
        /// The words of the system.
        source: io::Error,
    },
    /// A cut was asked of an outlet that is off: it would prove nothing.
    #[error(
        "outlet `{outlet}`: its state is off before any cut ({detail}); switch it on, or check that \
         `off_when` does not match the state on"
    )]
    AlreadyOff {
        /// The outlet.
        outlet: String,
        /// What was seen.
        detail: String,
    },
    /// Power was asked on and never seen on.
    #[error(
        "outlet `{outlet}`: not seen on within {waited_ms} ms of asking (last: {detail}); switch it \
         on by hand, and check the `on` and `status` commands"
    )]
    NotRestored {
        /// The outlet.
        outlet: String,
        /// How long was waited.
        waited_ms: u64,
        /// The last thing seen.
        detail: String,
    },
    /// A person could not be asked.
    #[error(
        "outlet `{outlet}`: cannot prompt: {source}; a manual outlet needs a terminal with a person \
         at it"
    )]
    NoPrompt {
        /// The outlet.
        outlet: String,
        /// The words of the system.
        source: io::Error,
    },
    /// A stored receipt says something that its own evidence does not.
    #[error("cut receipt of outlet `{outlet}`: {problem}; count this cut as unconfirmed")]
    Receipt {
        /// The outlet.
        outlet: String,
        /// What does not fit.
        problem: String,
    },
}
