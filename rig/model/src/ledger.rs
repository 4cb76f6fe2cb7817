//! What was issued and what was acknowledged, and when.
//!
//! On disk: one JSON object a line. Line 1 is the header; every further line
//! is one [`LedgerLine`]. The last line of a ledger that was cut off may be
//! half there: it is dropped, which can only weaken a verdict.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{Position, Sequence, StreamId};

/// Version of the ledger file.
pub const LEDGER_SCHEMA: u32 = 1;
/// Longest ledger line that is read; a longer one is not ours.
pub const MAX_LEDGER_LINE_BYTES: usize = 4096;

/// One operation's name: records are never written twice under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OperationId {
    /// The writer's stream.
    pub stream: StreamId,
    /// Place in the stream.
    pub sequence: Sequence,
    /// Which write of the address.
    pub version: u32,
}

/// One line of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LedgerLine {
    /// First line.
    Header {
        /// [`LEDGER_SCHEMA`].
        schema: u32,
    },
    /// Read from the drive right before the write call: early is safe.
    Issued {
        /// Which operation.
        operation: OperationId,
        /// The drive's position.
        at: Position,
        /// Nanoseconds of the monotonic clock of the machine that wrote the line.
        time_ns: u64,
    },
    /// Read from the drive right after the acknowledging call returned: late is safe.
    Acknowledged {
        /// Which operation.
        operation: OperationId,
        /// The drive's position.
        at: Position,
        /// Nanoseconds of the monotonic clock of the machine that wrote the line.
        time_ns: u64,
        /// From before the write to after the acknowledgement.
        latency_ns: u64,
    },
    /// The write or its sync failed: nothing is acknowledged, now or later.
    Failed {
        /// Which operation.
        operation: OperationId,
        /// The drive's position.
        at: Position,
        /// Nanoseconds of the monotonic clock of the machine that wrote the line.
        time_ns: u64,
        /// The error number.
        errno: i32,
    },
    /// Written last: every operation of the trial is in the ledger.
    Complete {
        /// The drive's position.
        at: Position,
    },
}

/// What the ledger knows of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationState {
    /// Where the drive stood when it was issued.
    pub issued_at: Position,
    /// When it was issued.
    pub issued_ns: u64,
    /// Where the drive stood when it was acknowledged, and the line that says so.
    pub acknowledged: Option<Acknowledgement>,
    /// Whether it failed.
    pub failed: bool,
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Where the drive stood.
    pub at: Position,
    /// Nanoseconds of the same clock.
    pub time_ns: u64,
    /// Line of the ledger, from 1.
    pub line: u64,
}

/// A ledger folded by operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    operations: BTreeMap<OperationId, OperationState>,
    complete_to: Option<Position>,
    first_acknowledgement: Option<Position>,
    lines: u64,
}

/// A ledger that contradicts itself.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("ledger line {line}: {reason}; the ledger is void")]
pub struct LedgerError {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

impl Ledger {
    /// Takes the next line.
    ///
    /// # Errors
    /// When the line contradicts an earlier one (acknowledged but never
    /// issued, issued twice, acknowledged after a failure).
    pub fn push(&mut self, entry: LedgerLine) -> Result<(), LedgerError> {
        self.lines += 1;
        let line = self.lines;
        let void = |reason: String| Err(LedgerError { line, reason });
        if self.complete_to.is_some() {
            return void("a line after the one that says the ledger is complete".to_owned());
        }
        match entry {
            LedgerLine::Header { schema } => {
                if line != 1 || schema != LEDGER_SCHEMA {
                    return void(format!(
                        "a header with schema {schema} here (this version reads {LEDGER_SCHEMA}, on line 1)"
                    ));
                }
            }
            LedgerLine::Issued {
                operation,
                at,
                time_ns,
            } => {
                let state = OperationState {
                    issued_at: at,
                    issued_ns: time_ns,
                    acknowledged: None,
                    failed: false,
                };
                if self.operations.insert(operation, state).is_some() {
                    return void(format!("{operation:?} is issued twice"));
                }
            }
            LedgerLine::Acknowledged {
                operation,
                at,
                time_ns,
                ..
            } => match self.operations.get_mut(&operation) {
                Some(state) if state.failed => {
                    return void(format!("{operation:?} failed and is acknowledged later"));
                }
                Some(state) if state.acknowledged.is_some() => {
                    return void(format!("{operation:?} is acknowledged twice"));
                }
                Some(state) if at < state.issued_at => {
                    return void(format!("{operation:?} is acknowledged before it is issued"));
                }
                Some(state) => {
                    state.acknowledged = Some(Acknowledgement { at, time_ns, line });
                    let first = self.first_acknowledgement.get_or_insert(at);
                    *first = (*first).min(at);
                }
                None => {
                    return void(format!(
                        "{operation:?} is acknowledged and was never issued"
                    ));
                }
            },
            LedgerLine::Failed { operation, .. } => match self.operations.get_mut(&operation) {
                Some(state) if state.acknowledged.is_some() => {
                    return void(format!("{operation:?} was acknowledged and fails later"));
                }
                Some(state) => state.failed = true,
                None => return void(format!("{operation:?} fails and was never issued")),
            },
            LedgerLine::Complete { at } => self.complete_to = Some(at),
        }
        Ok(())
    }

    /// What is known of one operation.
    #[must_use]
    pub fn get(&self, operation: &OperationId) -> Option<&OperationState> {
        self.operations.get(operation)
    }

    /// Every operation, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&OperationId, &OperationState)> {
        self.operations.iter()
    }

    /// Operations issued.
    #[must_use]
    pub fn issued(&self) -> u64 {
        self.operations.len() as u64
    }

    /// Operations acknowledged.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.operations
            .values()
            .filter(|state| state.acknowledged.is_some())
            .count() as u64
    }

    /// Whether every operation issued up to `cut` is known to be here.
    #[must_use]
    pub fn is_complete_to(&self, cut: Position) -> bool {
        self.complete_to.is_some_and(|to| cut <= to)
    }

    /// The position of the last acknowledgement.
    #[must_use]
    pub fn last_acknowledgement(&self) -> Option<Position> {
        self.operations
            .values()
            .filter_map(|state| state.acknowledged.map(|a| a.at))
            .max()
    }

    /// Whether any operation was acknowledged at or before `cut`.
    #[must_use]
    pub fn marks_before(&self, cut: Position) -> bool {
        self.first_acknowledgement.is_some_and(|first| first <= cut)
    }

    /// Every acknowledgement, by position: the marks of the write log.
    #[must_use]
    pub fn marks(&self) -> Vec<(Position, OperationId)> {
        let mut marks: Vec<_> = self
            .operations
            .iter()
            .filter_map(|(id, state)| state.acknowledged.map(|a| (a.at, *id)))
            .collect();
        marks.sort_unstable();
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(sequence: u64) -> OperationId {
        OperationId {
            stream: StreamId(0),
            sequence: Sequence(sequence),
            version: 1,
        }
    }
    fn issued(sequence: u64, at: u64) -> LedgerLine {
        LedgerLine::Issued {
            operation: operation(sequence),
            at: Position(at),
            time_ns: 0,
        }
    }
    fn acknowledged(sequence: u64, at: u64) -> LedgerLine {
        LedgerLine::Acknowledged {
            operation: operation(sequence),
            at: Position(at),
            time_ns: 0,
            latency_ns: 0,
        }
    }

    #[test]
    fn an_acknowledgement_without_an_issue_voids_the_ledger() {
        assert!(Ledger::default().push(acknowledged(0, 3)).is_err());
    }

    #[test]
    fn a_failed_operation_is_never_acknowledged() {
        let mut ledger = Ledger::default();
        ledger.push(issued(0, 1)).expect("issued");
        ledger
            .push(LedgerLine::Failed {
                operation: operation(0),
                at: Position(2),
                time_ns: 0,
                errno: 5,
            })
            .expect("failed");
        assert!(ledger.push(acknowledged(0, 3)).is_err());
        assert_eq!(ledger.acknowledged(), 0);
    }

    #[test]
    fn a_ledger_without_its_last_line_is_not_complete() {
        let mut ledger = Ledger::default();
        ledger.push(issued(0, 1)).expect("issued");
        assert!(!ledger.is_complete_to(Position(0)));
        ledger
            .push(LedgerLine::Complete { at: Position(9) })
            .expect("complete");
        assert!(ledger.is_complete_to(Position(9)));
        assert!(!ledger.is_complete_to(Position(10)));
    }
}
