//! The ledger that many writers append to while they run.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use plugpull_model::ledger::{LEDGER_SCHEMA, Ledger, LedgerLine};
use plugpull_model::seams::AckSink;
use plugpull_model::units::Position;

use crate::{GeneratorError, LedgerFile};

/// So many lines wait in memory before they go to the file and are folded.
const CHUNK_LINES: usize = 1024;

/// An [`AckSink`] that folds the lines into a [`Ledger`] and appends them to a [`LedgerFile`].
///
/// A line costs its writer one push under a lock that is never held for longer than a push. The
/// fold, the text and the file are worked off in chunks, by a writer that has just been
/// acknowledged or has failed: never between the position of an issued record and its write.
/// A crash of this process loses the lines that wait: the tail, which only weakens a verdict.
///
/// The fold checks every line against the earlier ones. A contradiction, or a file that cannot be
/// written, fails this and every later line, which stops the workload.
pub struct SharedLedger {
    waiting: Mutex<Waiting>,
    kept: Mutex<Kept>,
    broken: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<LedgerLine>,
    finished: bool,
}

/// Locked before [`Waiting`], so that chunks stay in order.
struct Kept {
    ledger: Ledger,
    file: Option<LedgerFile>,
    chunk: Vec<LedgerLine>,
}

impl SharedLedger {
    /// A ledger in memory only.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(None)
    }

    /// A ledger in memory and in a file that has its header.
    #[must_use]
    pub fn with_file(file: LedgerFile) -> Self {
        Self::new(Some(file))
    }

    fn new(file: Option<LedgerFile>) -> Self {
        let mut ledger = Ledger::default();
        // So that lines are counted as in the file. The first line of a ledger may be this one.
        let header = ledger.push(LedgerLine::Header {
            schema: LEDGER_SCHEMA,
        });
        Self {
            waiting: Mutex::default(),
            kept: Mutex::new(Kept {
                ledger,
                file,
                chunk: Vec::new(),
            }),
            broken: AtomicBool::new(header.is_err()),
        }
    }

    /// Brings every line so far to the file.
    ///
    /// # Errors
    /// [`GeneratorError::Ledger`] when one cannot be kept.
    pub fn flush(&self) -> Result<(), GeneratorError> {
        self.write_out().map_err(ledger_error)
    }

    /// Says that every operation of the trial is here, as the last line. `at` is the position of
    /// the drive after the workload ended. Any later line is refused.
    ///
    /// # Errors
    /// [`GeneratorError::Ledger`] when a line cannot be kept, or when it is finished already.
    pub fn finish(&self, at: Position) -> Result<(), GeneratorError> {
        let again = {
            let mut waiting = lock(&self.waiting);
            let again = waiting.finished;
            if !again {
                waiting.lines.push(LedgerLine::Complete { at });
                waiting.finished = true;
            }
            again
        };
        if again {
            return Err(ledger_error(finished_already()));
        }
        self.write_out().map_err(ledger_error)
    }

    /// The ledger, with every line so far. It is complete only after [`finish`](Self::finish).
    ///
    /// # Errors
    /// [`GeneratorError::Ledger`] when a line cannot be kept.
    pub fn into_ledger(self) -> Result<Ledger, GeneratorError> {
        self.flush()?;
        Ok(self
            .kept
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .ledger)
    }

    fn write_out(&self) -> io::Result<()> {
        let mut kept = lock(&self.kept);
        self.work_off(&mut kept)?;
        match &mut kept.file {
            Some(file) => file
                .flush()
                .inspect_err(|_| self.broken.store(true, Ordering::Relaxed)),
            None => Ok(()),
        }
    }

    fn work_off(&self, kept: &mut Kept) -> io::Result<()> {
        if self.broken.load(Ordering::Relaxed) {
            return Err(broken_before());
        }
        std::mem::swap(&mut kept.chunk, &mut lock(&self.waiting).lines);
        let outcome = kept.take_chunk();
        if outcome.is_err() {
            self.broken.store(true, Ordering::Relaxed);
        }
        outcome
    }
}

impl Kept {
    fn take_chunk(&mut self) -> io::Result<()> {
        for line in &self.chunk {
            self.ledger
                .push(*line)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
        if let Some(file) = &mut self.file {
            file.append(&self.chunk)?;
        }
        self.chunk.clear();
        Ok(())
    }
}

impl AckSink for SharedLedger {
    /// Takes an issued, acknowledged or failed line; the first and the last line are its own.
    fn record(&self, line: LedgerLine) -> io::Result<()> {
        let may_work = match line {
            LedgerLine::Issued { .. } => false,
            LedgerLine::Acknowledged { .. } | LedgerLine::Failed { .. } => true,
            LedgerLine::Header { .. } | LedgerLine::Complete { .. } => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "the ledger writes its first and last line itself",
                ));
            }
        };
        if self.broken.load(Ordering::Relaxed) {
            return Err(broken_before());
        }
        let many = {
            let mut waiting = lock(&self.waiting);
            if waiting.finished {
                return Err(finished_already());
            }
            waiting.lines.push(line);
            waiting.lines.len() >= CHUNK_LINES
        };
        if may_work && many {
            match self.kept.try_lock() {
                Ok(mut kept) => self.work_off(&mut kept)?,
                Err(TryLockError::Poisoned(kept)) => self.work_off(&mut kept.into_inner())?,
                // Another writer is at it.
                Err(TryLockError::WouldBlock) => {}
            }
        }
        Ok(())
    }
}

/// A panic of another writer leaves lines that are whole: each is pushed as one value.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ledger_error(source: io::Error) -> GeneratorError {
    GeneratorError::Ledger { source }
}

fn finished_already() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the ledger is finished and takes no further line",
    )
}

fn broken_before() -> io::Error {
    io::Error::other("an earlier line could not be kept")
}
