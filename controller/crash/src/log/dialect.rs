//! Whose log it is: the same bytes mean different things.

use std::fmt;
use std::str::FromStr;

/// Who wrote a dm-log-writes log, which says what its order means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// Plugpull, with a side-car: submissions and completions are known.
    Plugpull,
    /// The kernel's dm-log-writes target: what stands before a FLUSH is
    /// covered by it; completion order is not in the log.
    Kernel,
    /// QEMU's blklogwrites: entries stand in completion order, so a write
    /// before a FLUSH may have completed while the FLUSH was in flight.
    Qemu,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Dialect; 3] = [Dialect::Plugpull, Dialect::Kernel, Dialect::Qemu];

    /// As the command line spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Plugpull => "plugpull",
            Dialect::Kernel => "kernel",
            Dialect::Qemu => "qemu",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no dialect.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is no dialect: say plugpull, kernel or qemu")]
pub struct DialectError(String);

impl FromStr for Dialect {
    type Err = DialectError;
    fn from_str(text: &str) -> Result<Self, DialectError> {
        Dialect::ALL
            .into_iter()
            .find(|dialect| dialect.name() == text)
            .ok_or_else(|| DialectError(text.to_owned()))
    }
}
